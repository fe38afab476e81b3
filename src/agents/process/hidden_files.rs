//! Files and folders of ours that no command may see, shared by all terminals.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;

/// A list that a reload may add to: agents that it takes over hide the new files, too.
#[derive(Clone, Debug, Default)]
pub struct HiddenFiles(Arc<RwLock<Vec<PathBuf>>>);

impl HiddenFiles {
    /// Adds files. None is ever taken off: a key that is no longer used is still a key.
    pub fn add(&self, files: impl IntoIterator<Item = PathBuf>) {
        let mut hidden = self.0.write();
        for file in files {
            if !hidden.contains(&file) {
                hidden.push(file);
            }
        }
    }

    /// The files as of now.
    pub fn now(&self) -> Vec<PathBuf> {
        self.0.read().clone()
    }
}

impl From<Vec<PathBuf>> for HiddenFiles {
    fn from(files: Vec<PathBuf>) -> Self {
        Self(Arc::new(RwLock::new(files)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_who_shares_the_list_sees_what_is_added() {
        let hidden = HiddenFiles::from(vec![PathBuf::from("/a")]);
        let of_a_terminal = hidden.clone();
        hidden.add([PathBuf::from("/b"), PathBuf::from("/a")]);
        assert_eq!(of_a_terminal.now(), [PathBuf::from("/a"), PathBuf::from("/b")]);
    }
}
