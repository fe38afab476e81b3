//! The list of platform kinds: the only file of the core that names one. A new chat network is a line in [`KINDS`].

use talaria_console::ConsoleKind;
use talaria_platform::PlatformKind;
use talaria_platform::config::EnvVar;
#[cfg(not(feature = "matrix"))]
use talaria_platform::config::VarCategory;

#[cfg(feature = "testing")]
use crate::testing::network::TestKind;

/// The kinds that this build has, in the order in which people are shown them.
pub static KINDS: &[&dyn PlatformKind] = &[
    &ConsoleKind,
    #[cfg(feature = "matrix")]
    &talaria_matrix::MatrixKind,
    #[cfg(feature = "testing")]
    &TestKind,
];

/// A kind that a build can leave out. Its name and one variable stay known, so that a configuration for it is refused
/// with the reason and not taken for a slip.
pub struct LeftOutKind {
    /// The word behind `kind:`.
    pub name: &'static str,
    /// The network as people write it.
    pub title: &'static str,
    /// The feature of the build.
    pub feature: &'static str,
    /// A variable that every configuration by variables sets.
    pub variable: EnvVar,
    /// Variables with secrets. They stay secret: another build on the same machine may read them.
    pub secrets: &'static [&'static str],
}

/// The kinds that this build lacks.
pub static LEFT_OUT: &[LeftOutKind] = &[
    #[cfg(not(feature = "matrix"))]
    LeftOutKind {
        name: "matrix",
        title: "Matrix",
        feature: "matrix",
        variable: EnvVar {
            name: "MATRIX_HOMESERVER",
            category: VarCategory::Messaging,
            meaning: "address of a Matrix homeserver; refused, because this Talaria was built without Matrix",
            default: "",
            secret: false,
        },
        secrets: &["MATRIX_PASSWORD", "MATRIX_ACCESS_TOKEN", "MATRIX_RECOVERY_KEY", "MATRIX_STORE_KEY"],
    },
];

/// The kind with this name.
pub fn find(name: &str) -> Option<&'static dyn PlatformKind> {
    KINDS.iter().copied().find(|kind| kind.name() == name)
}

/// Names of all kinds, also of those that this build lacks. Each names the folder of its accounts in the state folder.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name()).chain(LEFT_OUT.iter().map(|kind| kind.name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_that_an_entry_can_have() {
        let mut seen = HashSet::new();
        for name in names() {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase()), "{name}");
            assert!(seen.insert(name), "{name} is there twice");
        }
    }

    #[test]
    fn a_command_has_the_name_of_its_kind_and_hides_no_other() {
        let kinds = KINDS.iter().filter(|kind| kind.command().is_some()).map(|kind| kind.name());
        let commands = crate::cli::Cli::command();
        for kind in kinds {
            let same = commands.get_subcommands().filter(|command| command.get_name() == kind);
            assert_eq!(same.count(), 1, "{kind}");
        }
    }

    #[test]
    fn variables_begin_with_the_name_of_their_kind() {
        for kind in KINDS {
            let prefix = format!("{}_", kind.name().to_uppercase());
            for var in kind.variables() {
                assert!(var.name.starts_with(&prefix), "{}", var.name);
            }
        }
    }
}
