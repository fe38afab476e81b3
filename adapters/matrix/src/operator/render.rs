//! Formats the answers about accounts for the terminal.

use std::fmt::Write as _;

use talaria_platform::one_line;
use talaria_platform::operator::table;

use super::requests::VerificationList;
use super::{AccountStatus, DoctorReport};
use crate::{VerificationStage, VerificationView};

/// Most characters of a line that contains words of somebody else.
const LINE: usize = 300;

pub(super) fn status(status: &AccountStatus, running: bool) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:13} {}", one_line(value, LINE));
    };
    line("account", &status.user);
    line("homeserver", &status.homeserver);
    line("device", &status.device);
    line("fingerprint", &status.fingerprint);
    line("our device", &status.says);
    line("key backup", if status.backup { "on" } else { "off" });
    if let Some(file) = &status.recovery_key {
        line("recovery key", &format!("{file} (move it to a safe place)"));
    }
    line("rooms", &format!("{}, {} of them encrypted", status.rooms, status.encrypted));
    line("gateway", if running { "runs" } else { "does not run" });
    if status.verifications > 0 {
        line("verify", &format!("{} waiting; `talaria matrix verify` goes on with it", status.verifications));
    }
    if let Some(hint) = &status.hint
        && !status.signed
    {
        let _ = writeln!(text, "\nhint: {hint}");
    }
    text
}

pub(super) fn health(health: &DoctorReport) -> String {
    let mut text = format!("{}\n\n", one_line(&health.user, LINE));
    for check in &health.checks {
        let mark = if check.well { "ok " } else { "BAD" };
        let _ = writeln!(text, "{mark}  {:14} {}", check.name, one_line(&check.says, LINE));
        if let Some(hint) = &check.hint {
            let _ = writeln!(text, "{:20}{hint}", "");
        }
    }
    if !health.is_well() {
        text.push_str("\nSomething is wrong; what to do is said below each line.\n");
    }
    text
}

pub(super) fn verifications(list: &VerificationList) -> String {
    if list.verifications.is_empty() {
        return "Nobody wants to verify us. They begin in their client: open our profile there and choose to verify."
            .to_owned();
    }
    let rows: Vec<_> = list
        .verifications
        .iter()
        .map(|one| {
            let device = one.device.clone().unwrap_or_default();
            [one.id.clone(), one.user.clone(), device, stage(&one.stage)]
        })
        .collect();
    table(["ID", "WHO", "DEVICE", "STATE"], &rows)
}

pub(super) fn verification(one: &VerificationView) -> String {
    let who = one_line(&one.user, LINE);
    let id = &one.id;
    match &one.stage {
        VerificationStage::Asked => format!("{who} waits. `talaria matrix verify accept {id}` begins."),
        VerificationStage::Accepted => format!(
            "Accepted; {who} has to go on in their client. Then run `talaria matrix verify accept {id}` again."
        ),
        VerificationStage::Compare => format!(
            "Compare with {who}:\n\n{}\nThe same on both sides: talaria matrix verify confirm {id}\nNot the same:            \
             talaria matrix verify mismatch {id}",
            pictures(one)
        ),
        VerificationStage::Confirmed => format!("Confirmed on our side; {who} has to confirm too."),
        VerificationStage::Done => format!("Done: {who} is verified."),
        VerificationStage::Cancelled(why) => format!("It was broken off: {}", one_line(why, LINE)),
    }
}

/// The verification is no longer there.
pub(super) fn unknown_end(one: &VerificationView) -> String {
    format!(
        "It is not known how the verification with {} ended. Look at what their client says, or begin again there.",
        one_line(&one.user, LINE)
    )
}

/// The pictures with their names, and the numbers.
pub(super) fn pictures(one: &VerificationView) -> String {
    let mut text = String::new();
    for (symbol, name) in &one.emoji {
        let _ = writeln!(text, "  {symbol}  {name}");
    }
    if let Some((a, b, c)) = one.numbers {
        let _ = writeln!(text, "  or as numbers: {a} {b} {c}");
    }
    text
}

fn stage(stage: &VerificationStage) -> String {
    match stage {
        VerificationStage::Asked => "waits to be accepted".to_owned(),
        VerificationStage::Accepted => "accepted, not begun".to_owned(),
        VerificationStage::Compare => "pictures are there".to_owned(),
        VerificationStage::Confirmed => "they have to confirm".to_owned(),
        VerificationStage::Done => "verified".to_owned(),
        VerificationStage::Cancelled(why) => format!("broken off: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(stage: VerificationStage) -> VerificationView {
        let emoji = vec![("🐶".to_owned(), "Dog".to_owned()), ("🔑".to_owned(), "Key".to_owned())];
        let (user, device) = ("@ann:example.org".to_owned(), Some("DEVICE".to_owned()));
        VerificationView {
            id: "1".to_owned(),
            user,
            device,
            own: false,
            stage,
            emoji,
            numbers: Some((1, 2, 3)),
        }
    }

    #[test]
    fn the_pictures_come_with_what_to_do() {
        insta::assert_snapshot!(verification(&one(VerificationStage::Compare)), @r"
        Compare with @ann:example.org:

          🐶  Dog
          🔑  Key
          or as numbers: 1 2 3

        The same on both sides: talaria matrix verify confirm 1
        Not the same:            talaria matrix verify mismatch 1
        ");
    }

    #[test]
    fn what_the_other_side_wrote_stays_in_its_line() {
        let list = VerificationList {
            verifications: vec![one(VerificationStage::Cancelled("no\n1 @eve waits".to_owned()))],
        };
        assert_eq!(verifications(&list).lines().count(), 2);
    }
}
