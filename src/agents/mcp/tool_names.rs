//! Gives MCP tools names that models can use. Pure.
//!
//! A model's protocol allows letters, digits, `_` and `-`, at most 64. Servers name their tools as they like, so two of
//! them can come out alike, within one server and between two.

use std::collections::BTreeSet;

use crate::util::{clip, hash};

/// Characters of a name, as the chat-completions protocol has it.
const NAME_CHARS: usize = 64;

/// Characters of a hash that tells two names apart.
const MARK: usize = 6;

/// The name of each tool, in the order of `tools`, which are pairs of a server and its tool. No two are alike: the first
/// of two keeps its name, and the other gets a suffix that is made of its own full name, so that the suffix does not
/// depend on the tools before it.
pub(super) fn model_names<'a>(tools: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut names = Vec::new();
    for (server, tool) in tools {
        let plain = reduce(&format!("mcp_{server}_{tool}"));
        let mut name = plain.clone();
        let mut times = 0_u32;
        while name.len() > NAME_CHARS || taken.contains(&name) {
            name = marked(&plain, server, tool, times);
            times += 1;
        }
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

/// Whether a tool of this server may have this name. True for all servers whose tools could collide with it.
pub(super) fn may_be_of(name: &str, server: &str) -> bool {
    // A long name is cut before its mark.
    name.starts_with(clip(&reduce(&format!("mcp_{server}_")), NAME_CHARS - MARK - 1))
}

/// The text with everything replaced that is no letter, digit, `_` or `-`.
pub(super) fn reduce(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

fn marked(plain: &str, server: &str, tool: &str, times: u32) -> String {
    let mark = hash([server, tool, &times.to_string()]);
    let (mark, kept) = (clip(&mark, MARK), clip(plain, NAME_CHARS - MARK - 1));
    format!("{kept}_{mark}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_has_the_server_and_the_tool_in_it() {
        assert_eq!(
            model_names([("files", "read_file"), ("files", "list-all")]),
            ["mcp_files_read_file", "mcp_files_list-all"]
        );
        assert_eq!(model_names([("my server", "größe.messen")]), ["mcp_my_server_gr__e_messen"]);
    }

    #[test]
    fn names_that_collide_are_told_apart_and_the_first_stays() {
        let names = model_names([("a", "b_c"), ("a_b", "c"), ("a", "b.c"), ("a", "b.c")]);
        assert_eq!(names[0], "mcp_a_b_c");
        assert!(names[1..].iter().all(|name| name.starts_with("mcp_a_b_c_")), "{names:?}");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 4, "{names:?}");
        // The suffix is of the tool itself: it is the same behind another tool that collides.
        assert_eq!(
            model_names([("x_y", "z"), ("x", "y_z")])[1],
            model_names([("x", "y.z"), ("x", "y_z")])[1]
        );
    }

    proptest! {
        #[test]
        fn every_name_fits_the_protocol_and_is_unique(
            tools in proptest::collection::vec((".{0,40}", ".{0,90}"), 0..20),
        ) {
            let names = model_names(tools.iter().map(|(server, tool)| (server.as_str(), tool.as_str())));
            prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), tools.len());
            for (name, (server, _)) in names.iter().zip(&tools) {
                prop_assert!(may_be_of(name, server), "{name:?} of {server:?}");
                prop_assert!(name.len() <= NAME_CHARS && !name.is_empty());
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            }
        }
    }
}
