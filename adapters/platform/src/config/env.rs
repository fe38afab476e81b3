//! Environment variables as data, and the only way to read one.
//!
//! The core lists its own variables and those of every kind of platform in one table, which `talaria env` prints.

/// A variable that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvVar {
    /// Its name.
    pub name: &'static str,
    /// The part of the configuration that it belongs to.
    pub category: VarCategory,
    /// One line for people.
    pub meaning: &'static str,
    /// The value that holds when it is unset, for people; empty if there is none.
    pub default: &'static str,
    /// Whether its value must never be shown.
    pub secret: bool,
}

/// The part of the configuration that a variable belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VarCategory {
    /// Chat networks, and the relay to a remote agent server.
    Messaging,
    /// The model behind the local agent.
    Model,
    /// The agent server, which programs talk to.
    Server,
    /// The command that asks an agent server.
    Client,
    /// Folders and files.
    State,
    /// The log.
    Log,
}

impl VarCategory {
    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messaging => "messaging",
            Self::Model => "model",
            Self::Server => "server",
            Self::Client => "client",
            Self::State => "state",
            Self::Log => "log",
        }
    }
}

/// Reads variables.
#[derive(Clone, Copy)]
pub struct EnvReader<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> EnvReader<'a> {
    /// A reader that asks `lookup` for the value of a variable.
    pub fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { lookup }
    }

    /// The value without white space around it; blank counts as unset.
    pub fn get(self, var: &EnvVar) -> Option<String> {
        self.get_named(var.name)
    }

    /// The value of a variable that is in no table, because the configuration file names it. Trimmed as by
    /// [`Self::get`].
    pub fn get_named(self, name: &str) -> Option<String> {
        let value = (self.lookup)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_is_unset() {
        let var =
            |name| EnvVar { name, category: VarCategory::State, meaning: "", default: "", secret: false };
        let lookup = |name: &str| Some(if name == "HOME" { " /home/ann " } else { " \t" }.to_owned());
        let env = EnvReader::new(&lookup);
        assert_eq!(env.get(&var("HOME")).as_deref(), Some("/home/ann"));
        assert_eq!(env.get(&var("OTHER")), None);
    }
}
