//! Passes the shim's own input on to the command, and notices its end.

use std::io::{self, Write as _};
use std::process::ChildStdin;

use rustix::event::{PollFd, PollFlags};
use rustix::stdio::stdin;

/// Bytes that wait for a command that does not read. When they are full, the gateway's writer waits.
const BUFFER: usize = 64 * 1024;

/// From our standard input to that of the command.
pub(super) struct InputPump {
    /// Bytes that were read and not yet written, at most [`BUFFER`].
    buffer: Vec<u8>,
    /// Standard input of the command, not blocking. `None` once it is closed, and if the command has none: then bytes are
    /// thrown away.
    target: Option<ChildStdin>,
    /// Whether everything was read.
    is_read: bool,
    /// Whether the other end is closed. There may still be bytes in the pipe.
    is_hung_up: bool,
}

/// Positions of the pump's files in a list for `poll`.
pub(super) struct WatchedFiles {
    source: Option<usize>,
    target: Option<usize>,
}

impl WatchedFiles {
    /// Events of source and target.
    pub(super) fn events(&self, fds: &[PollFd<'_>]) -> (PollFlags, PollFlags) {
        let of =
            |at: Option<usize>| at.and_then(|at| fds.get(at)).map_or(PollFlags::empty(), PollFd::revents);
        (of(self.source), of(self.target))
    }
}

impl InputPump {
    pub(super) fn new(target: Option<ChildStdin>) -> io::Result<Self> {
        if let Some(target) = &target {
            rustix::io::ioctl_fionbio(target, true)?;
        }
        Ok(Self { buffer: Vec::new(), target, is_read: false, is_hung_up: false })
    }

    /// Whether the gateway has closed its end, or has died.
    pub(super) fn is_over(&self) -> bool {
        self.is_hung_up
    }

    /// Closes the input of the command. Bytes that were not written are lost.
    pub(super) fn close(&mut self) {
        self.target = None;
        self.buffer.clear();
    }

    /// Adds the files that must be watched.
    pub(super) fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) -> WatchedFiles {
        let has_room = self.buffer.len() < BUFFER;
        let mut add = |fd: PollFd<'a>| {
            fds.push(fd);
            fds.len() - 1
        };
        // Without room, only the hang-up is waited for. Once that has come, it would come again at once.
        let source = (!self.is_read && (has_room || !self.is_hung_up)).then(|| {
            let events = if has_room { PollFlags::IN } else { PollFlags::empty() };
            add(PollFd::from_borrowed_fd(stdin(), events))
        });
        let target = self.target.as_ref().map(|target| {
            let events = if self.buffer.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            add(PollFd::new(target, events))
        });
        WatchedFiles { source, target }
    }

    /// Moves as many bytes as can be moved without waiting.
    pub(super) fn pump(&mut self, source: PollFlags, target: PollFlags) {
        let ended = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        self.is_hung_up |= source.intersects(ended);
        if target.intersects(PollFlags::ERR) {
            // The command no longer reads.
            self.close();
        }
        if source.intersects(PollFlags::IN | ended) {
            self.read();
        }
        self.write();
        if self.is_read && self.buffer.is_empty() {
            self.target = None;
        }
    }

    /// Reads once; `poll` has said that this does not wait.
    fn read(&mut self) {
        let room = BUFFER - self.buffer.len().min(BUFFER);
        if room == 0 {
            return;
        }
        let mut chunk = vec![0; room];
        match rustix::io::read(stdin(), &mut chunk) {
            Ok(read @ 1..) if self.target.is_some() => {
                self.buffer.extend_from_slice(chunk.get(..read).unwrap_or_default());
            }
            Ok(1..) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Ok(0) | Err(_) => {
                self.is_read = true;
                self.is_hung_up = true;
            }
        }
    }

    fn write(&mut self) {
        let Some(target) = &mut self.target else { return };
        while !self.buffer.is_empty() {
            match target.write(&self.buffer) {
                Ok(written @ 1..) => drop(self.buffer.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(0) | Err(_) => return self.close(),
            }
        }
    }
}
