//! Tests of `TimedConnection` on a paused clock, with a connection in memory.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

/// A connection, its progress, and the peer's end.
fn connected(room: usize) -> (TimedConnection<DuplexStream>, ConnectionProgress, DuplexStream) {
    let ((ours, theirs), progress) = (duplex(room), ConnectionProgress::begin());
    (TimedConnection::new(ours, progress.clone()), progress, theirs)
}

/// Result of a read, and the seconds that it took.
async fn waits(wire: &mut TimedConnection<DuplexStream>) -> (Result<usize, io::ErrorKind>, u64) {
    let began = Instant::now();
    let read = wire.read(&mut [0; 64]).await.map_err(|error| error.kind());
    (read, began.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_speaks_is_closed() {
    let (mut wire, _, mut theirs) = connected(64);
    assert_eq!(waits(&mut wire).await, (Err(io::ErrorKind::TimedOut), 10));
    drop(wire);
    assert_eq!(
        theirs.read_to_end(&mut Vec::new()).await.unwrap(),
        0,
        "nothing was asked, nothing is answered"
    );
}

#[tokio::test(start_paused = true)]
async fn a_head_that_dribbles_in_is_given_up() {
    let (mut wire, _, mut theirs) = connected(4096);
    let began = Instant::now();
    let dribbling = tokio::spawn(async move {
        while theirs.write_all(b"G").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        let mut answer = String::new();
        theirs.read_to_string(&mut answer).await.unwrap();
        answer
    });
    let error = loop {
        if let (Err(error), _) = waits(&mut wire).await {
            break error;
        }
    };
    assert_eq!((error, began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 10));
    drop(wire);
    let answer = dribbling.await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 408 ") && answer.contains(r#""code":"request_timeout""#),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_takes_as_long_as_it_takes_and_then_the_next_request_has_its_time() {
    let (mut wire, progress, mut theirs) = connected(4096);
    theirs.write_all(b"GET").await.unwrap();
    assert_eq!(waits(&mut wire).await, (Ok(3), 0));
    let answering = progress.answers();
    let mut room = [0; 64];
    let quiet = tokio::time::timeout(Duration::from_secs(100_000), wire.read(&mut room)).await;
    assert!(quiet.is_err(), "a client that waits for an answer sends nothing");
    drop(answering);
    let quiet = tokio::time::timeout(Duration::from_secs(100_000), wire.read(&mut room)).await;
    assert!(quiet.is_err(), "how long it may be idle is not decided here");

    // The time limit of a head starts when the next request begins.
    let (mut wire, progress, mut theirs) = connected(4096);
    drop(progress.answers());
    let later = async {
        tokio::time::sleep(Duration::from_secs(70)).await;
        theirs.write_all(b"G").await.unwrap();
    };
    let (read, ()) = tokio::join!(waits(&mut wire), later);
    assert_eq!(read, (Ok(1), 70));
    assert_eq!(waits(&mut wire).await, (Err(io::ErrorKind::TimedOut), 10));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_loses_the_connection_and_a_slow_one_does_not() {
    let (mut wire, progress, mut theirs) = connected(10);
    let _answering = progress.answers();
    let began = Instant::now();
    let slow = tokio::spawn(async move {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(50)).await;
            theirs.read_exact(&mut [0; 10]).await.unwrap();
        }
        theirs
    });
    wire.write_all(&[b'x'; 200]).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 950);
    let _theirs = slow.await.unwrap();
    wire.write_all(&[b'x'; 10]).await.unwrap();
    let began = Instant::now();
    let error = wire.write_all(b"x").await.unwrap_err();
    assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
}

#[tokio::test(start_paused = true)]
async fn the_last_word_is_heard_before_the_connection_is_gone() {
    let (mut wire, progress, mut theirs) = connected(16);
    theirs.write_all(b"POST").await.unwrap();
    assert_eq!(waits(&mut wire).await, (Ok(4), 0));
    drop(progress.answers());
    let sending = tokio::spawn(async move {
        theirs.write_all(&[b'x'; 100_000]).await.unwrap();
        let mut answer = String::new();
        theirs.read_to_string(&mut answer).await.unwrap();
        answer
    });
    wire.write_all(b"too large").await.unwrap();
    wire.shutdown().await.unwrap();
    drop(wire);
    assert_eq!(sending.await.unwrap(), "too large");

    // Lingering is bounded.
    let (mut wire, _, mut theirs) = connected(16);
    theirs.write_all(b"POST").await.unwrap();
    assert_eq!(waits(&mut wire).await, (Ok(4), 0));
    let began = Instant::now();
    wire.shutdown().await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_hyper_answers_by_itself_is_said_in_our_form() {
    let own = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let (mut wire, progress, mut theirs) = connected(64);
    let reading = tokio::spawn(async move {
        let mut answer = String::new();
        theirs.read_to_string(&mut answer).await.unwrap();
        answer
    });
    // While a handler answers, bytes pass unchanged.
    let answering = progress.answers();
    wire.write_all(own).await.unwrap();
    drop(answering);
    wire.write_all(&[b"rest", own.as_slice()].concat()).await.unwrap();
    wire.flush().await.unwrap();
    drop(wire);
    let answer = reading.await.unwrap();
    let answer = answer.strip_prefix(std::str::from_utf8(own).unwrap()).unwrap();
    assert!(answer.starts_with("restHTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(answer.contains("\r\nx-frame-options: DENY\r\n") && answer.contains(r#""code":"invalid_http""#));
}

#[tokio::test(start_paused = true)]
async fn a_connection_rests_once_its_answer_is_taken_and_not_when_it_is_written() {
    let (mut wire, progress, mut theirs) = connected(10);
    assert!(progress.has_rested());
    let answering = progress.answers();
    assert!(!progress.has_rested() && !progress.has_rested());
    drop(answering);
    let taking = async {
        // The body is dropped, and half of it is unread.
        tokio::task::yield_now().await;
        assert!(!progress.has_rested() && !progress.has_rested());
        theirs.read_exact(&mut [0; 20]).await.unwrap();
    };
    let (written, ()) = tokio::join!(wire.write_all(&[b'x'; 20]), taking);
    written.unwrap();
    // The first call still sees the change; the second does not.
    assert!(!progress.has_rested());
    wire.flush().await.unwrap();
    assert!(progress.has_rested());
}
