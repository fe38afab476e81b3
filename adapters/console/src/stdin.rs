//! Finds out what standard input is connected to.
//!
//! It only asks the system and never reads: a gateway in a container must not take its empty input for the end of a
//! file and stop.

use std::os::fd::AsFd;

use rustix::fs::{FileType, fstat, stat};
use rustix::termios::isatty;

/// The kind of thing at the other end of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinKind {
    /// A person who types.
    Terminal,
    /// A pipe, a file or a socket, read to its end.
    Lines,
    /// Nobody: `/dev/null`, as services and containers have it, or a closed descriptor.
    Nothing,
}

/// Looks at standard input without reading from it.
pub fn stdin_kind() -> StdinKind {
    kind_of(rustix::stdio::stdin())
}

fn kind_of(file: impl AsFd) -> StdinKind {
    let Ok(status) = fstat(&file) else { return StdinKind::Nothing };
    match FileType::from_raw_mode(status.st_mode) {
        FileType::CharacterDevice if isatty(&file) => StdinKind::Terminal,
        FileType::CharacterDevice => match stat("/dev/null") {
            Ok(null) if null.st_rdev != status.st_rdev => StdinKind::Lines,
            Ok(_) | Err(_) => StdinKind::Nothing,
        },
        FileType::RegularFile | FileType::Fifo | FileType::Socket | FileType::BlockDevice => StdinKind::Lines,
        FileType::Directory | FileType::Symlink | FileType::Unknown => StdinKind::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn files_pipes_and_sockets_are_lines() {
        assert_eq!(kind_of(tempfile::tempfile().unwrap()), StdinKind::Lines);
        assert_eq!(kind_of(std::io::pipe().unwrap().0), StdinKind::Lines);
        assert_eq!(kind_of(UnixStream::pair().unwrap().0), StdinKind::Lines);
        assert_eq!(kind_of(File::open("/dev/zero").unwrap()), StdinKind::Lines);
    }

    #[test]
    fn the_null_device_and_folders_are_nothing() {
        assert_eq!(kind_of(File::open("/dev/null").unwrap()), StdinKind::Nothing);
        assert_eq!(kind_of(File::open("/").unwrap()), StdinKind::Nothing);
    }

    #[test]
    fn a_terminal_is_a_terminal() {
        // Not every machine that runs tests gives out terminals.
        if let Ok(terminal) = File::options().read(true).write(true).open("/dev/ptmx") {
            assert_eq!(kind_of(terminal), StdinKind::Terminal);
        }
    }
}
