//! Looks at everything that encryption needs, and says how to mend what is wrong.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use matrix_sdk::ruma::OwnedUserId;
use serde::{Deserialize, Serialize};
use talaria_platform::{AuthorTrust, PlatformErrorKind};

use crate::config::{EncryptionPolicy, MatrixSettings};
use crate::encryption::{DeviceSetup, RECOVERY_KEY};
use crate::error::kind_of;
use crate::login::OpenedAccount;

/// Largest harmless difference between the clocks of the homeserver and this machine. Verification breaks at minutes;
/// requests are ordered by seconds.
const CLOCK: Duration = Duration::from_secs(60);

/// One-time keys below which somebody is using them up faster than we bring them. The SDK keeps fifty there.
const FEW_KEYS: u64 = 5;

/// People whom a check names; of the others it says how many they are.
const NAMED: usize = 5;

/// The name of the check of the people whom the operator verified.
const IDENTITIES: &str = "identities";

/// The name of the check that says what the homeserver allows.
pub const RATE_LIMITS: &str = "rate limits";

/// Findings of `talaria matrix doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// The account.
    pub user: String,
    /// The checks, in order.
    pub checks: Vec<DoctorCheck>,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorCheck {
    /// Subject of the check.
    pub name: String,
    /// Whether the check found no fault.
    pub well: bool,
    /// The finding.
    pub says: String,
    /// Advice: a way to mend the fault, or to improve the setting.
    pub hint: Option<String>,
}

impl DoctorReport {
    /// Whether everything is right.
    pub fn is_well(&self) -> bool {
        self.checks.iter().all(|check| check.well)
    }
}

impl DoctorCheck {
    fn good(name: &str, says: impl Into<String>) -> Self {
        Self { name: name.to_owned(), well: true, says: says.into(), hint: None }
    }

    fn bad(name: &str, says: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name: name.to_owned(), well: false, says: says.into(), hint: Some(hint.into()) }
    }

    fn with(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Looks at an open account. Changes nothing.
pub(super) async fn examine(opened: &OpenedAccount, settings: &MatrixSettings) -> DoctorReport {
    let mut checks = Vec::new();
    homeserver(opened, &mut checks).await;
    // Also brings a new token, if the old one has run out.
    match opened.client.whoami().await {
        Ok(_) => {
            checks.push(DoctorCheck::good("session", format!("logged in as {}", opened.own)));
            device(opened, &mut checks).await;
        }
        Err(error) if matches!(kind_of(&error), PlatformErrorKind::Retry { .. }) => {
            checks.push(DoctorCheck::bad(
                "session",
                format!("not known, because the homeserver cannot be asked: {error}"),
                "look at the line above, then try again",
            ))
        }
        Err(error) => checks.push(DoctorCheck::bad(
            "session",
            format!("the homeserver does not take our token: {error}"),
            "if it was revoked, run `talaria matrix logout` and log in again with the recovery key",
        )),
    }
    checks.push(signing(opened, settings));
    backup(opened, &mut checks).await;
    checks.push(store(opened).await);
    checks.push(rooms(opened, settings));
    checks.push(match changed(opened).await {
        Ok(people) => identities(&people, settings.trust),
        Err(error) => DoctorCheck::bad(IDENTITIES, format!("not known: {error}"), "try again"),
    });
    checks.push(rate(opened, settings));
    DoctorReport { user: opened.own.to_string(), checks }
}

async fn homeserver(opened: &OpenedAccount, checks: &mut Vec<DoctorCheck>) {
    let base = opened.http.base().to_string();
    let began = SystemTime::now();
    let (versions, date) = match opened.http.versions().await {
        Ok(answer) => answer,
        Err(failure) => {
            let why = crate::operator_error::in_words(failure.into_error("asking"));
            checks.push(DoctorCheck::bad("homeserver", format!("{base}: {}", why.message), why.hint));
            return;
        }
    };
    let now = SystemTime::now();
    let took = now.duration_since(began).unwrap_or_default();
    let newest = versions.last().cloned().unwrap_or_default();
    checks.push(DoctorCheck::good(
        "homeserver",
        format!("{base} speaks Matrix {newest}, answers in {} ms", took.as_millis()),
    ));
    let Some(date) = date else { return };
    let apart = match now.duration_since(date) {
        Ok(ahead) => ahead,
        Err(behind) => behind.duration(),
    };
    checks.push(match apart <= CLOCK {
        true => DoctorCheck::good("clock", "agrees with the homeserver's"),
        false => DoctorCheck::bad(
            "clock",
            format!("{} seconds apart from the homeserver's", apart.as_secs()),
            "set the clock of this machine (timedatectl set-ntp true), or the homeserver's",
        ),
    });
}

async fn device(opened: &OpenedAccount, checks: &mut Vec<DoctorCheck>) {
    let token = opened.session.now().access_token;
    let ours = opened.client.encryption().ed25519_key().await;
    let check = match opened.http.device_key(&token, &opened.own, &opened.device).await {
        Err(failure) => {
            let why = crate::operator_error::in_words(failure.into_error("asking for our device"));
            DoctorCheck::bad("device", why.message, why.hint)
        }
        Ok(None) => DoctorCheck::bad(
            "device",
            format!("{} has not shown its keys to the homeserver", opened.device),
            "start the gateway, or run `talaria matrix login`",
        ),
        Ok(shown) if shown == ours => {
            DoctorCheck::good("device", format!("{}, with the keys of our store", opened.device))
        }
        Ok(Some(_)) => DoctorCheck::bad(
            "device",
            format!("{} has other keys on the homeserver than in our store", opened.device),
            "nobody can write to it: run `talaria matrix logout` and log in again with the recovery key",
        ),
    };
    checks.push(check);
    checks.push(match opened.http.one_time_keys(&token).await {
        Ok(count) if count >= FEW_KEYS => {
            DoctorCheck::good("one-time keys", format!("{count} on the homeserver"))
        }
        Ok(count) => DoctorCheck::bad(
            "one-time keys",
            format!("{count} on the homeserver"),
            "the running gateway brings new ones; if they stay few while it runs, look at its log",
        ),
        Err(failure) => {
            let why = crate::operator_error::in_words(failure.into_error("counting our one-time keys"));
            DoctorCheck::bad("one-time keys", why.message, why.hint)
        }
    });
}

fn signing(opened: &OpenedAccount, settings: &MatrixSettings) -> DoctorCheck {
    let setup = opened.setup.borrow().clone();
    let (says, hint) = setup.words();
    match &setup {
        DeviceSetup::Signed(_) => DoctorCheck::good("cross-signing", format!("our device {says}")),
        DeviceSetup::NotYet | DeviceSetup::Trying { .. } | DeviceSetup::Unsigned(_) => {
            let hint = hint.unwrap_or("wait for the first sync");
            let trust = format!("{:?}", settings.trust);
            DoctorCheck::bad("cross-signing", format!("our device {says} (trust: {trust})"), hint)
        }
    }
}

async fn backup(opened: &OpenedAccount, checks: &mut Vec<DoctorCheck>) {
    let encryption = opened.client.encryption();
    let secrets = encryption.cross_signing_status().await.is_some_and(|status| status.is_complete());
    let file = opened.folder.at(RECOVERY_KEY);
    checks.push(match encryption.secret_storage().is_enabled().await {
        Ok(true) if file.exists() => DoctorCheck::good("recovery", "the account can be recovered")
            .with(format!("move {} to a safe place", file.display())),
        Ok(true) => DoctorCheck::good("recovery", "the account can be recovered with its recovery key"),
        Ok(false) if secrets => DoctorCheck::bad(
            "recovery",
            "there is no recovery key",
            "start the gateway: it makes one and says where it is",
        ),
        Ok(false) => DoctorCheck::bad(
            "recovery",
            "there is no recovery key",
            "set up recovery in another client of this account, and set `recovery_key`",
        ),
        Err(error) => DoctorCheck::bad("recovery", format!("not known: {error}"), "try again"),
    });
    checks.push(match encryption.backups().are_enabled().await {
        true => DoctorCheck::good("backup", "room keys are backed up"),
        false => DoctorCheck::bad(
            "backup",
            "room keys are not backed up by this device",
            "set `recovery_key` (MATRIX_RECOVERY_KEY) and restart the gateway",
        ),
    });
}

async fn store(opened: &OpenedAccount) -> DoctorCheck {
    let session = opened.session.now();
    let size = opened.client.get_store_sizes().await.ok();
    let size = size.map_or(0, |sizes| {
        let parts = [sizes.crypto_store, sizes.state_store, sizes.event_cache_store, sizes.media_store];
        parts.into_iter().flatten().sum()
    });
    let place = opened.folder.at(&session.store);
    let says =
        format!("{} ({:.1} MB), opened {} times", place.display(), size as f64 / 1e6, session.opened + 1);
    DoctorCheck::good("store", says)
}

fn rooms(opened: &OpenedAccount, settings: &MatrixSettings) -> DoctorCheck {
    let rooms = opened.client.joined_rooms();
    let plain = rooms.iter().filter(|room| !room.encryption_state().is_encrypted()).count();
    joined(rooms.len(), plain, settings.e2ee)
}

/// Says how many rooms there are, and what follows from those without encryption. A single one costs a sync for each of
/// our own messages and edits, in every room: see `inbound::wake`.
fn joined(rooms: usize, plain: usize, policy: EncryptionPolicy) -> DoctorCheck {
    let check = DoctorCheck::good("rooms", format!("in {rooms}, {plain} of them not encrypted"));
    match policy {
        EncryptionPolicy::Required if plain > 0 => check.with(
            "rooms without encryption are not served, and make every answer of this account cost more; switch encryption \
             on there, leave them, or set `e2ee: optional`",
        ),
        EncryptionPolicy::Optional if plain > 0 && plain < rooms => check.with(
            "rooms without encryption make every answer of this account cost more, in encrypted rooms too; switch \
             encryption on there, or serve them with an account of their own",
        ),
        EncryptionPolicy::Required | EncryptionPolicy::Optional => check,
    }
}

/// People in our encrypted rooms who were verified and have another identity now.
async fn changed(opened: &OpenedAccount) -> Result<BTreeSet<OwnedUserId>, matrix_sdk::Error> {
    let mut members = BTreeSet::new();
    for room in opened.client.joined_rooms().iter().filter(|room| room.encryption_state().is_encrypted()) {
        members.extend(room.joined_user_ids().await?);
    }
    let mut changed = BTreeSet::new();
    for user in members {
        let identity = opened.client.encryption().get_user_identity(&user).await?;
        if identity.is_some_and(|identity| identity.has_verification_violation()) {
            changed.insert(user);
        }
    }
    Ok(changed)
}

/// Explains that these people have another identity.
fn identities(changed: &BTreeSet<OwnedUserId>, trust: AuthorTrust) -> DoctorCheck {
    if changed.is_empty() {
        return DoctorCheck::good(IDENTITIES, "nobody who was verified has another identity");
    }
    let named: Vec<_> = changed.iter().take(NAMED).map(|user| user.as_str()).collect();
    let more = match changed.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let says = format!("verified, but with another identity since: {}{more}", named.join(", "));
    let hint = "verify them again (they begin in their client, then `talaria matrix verify`), or remove them from the room";
    match trust {
        // Keys go to everybody; that it is somebody else is for people to judge.
        AuthorTrust::Violated | AuthorTrust::Network => DoctorCheck::good(IDENTITIES, says).with(hint),
        AuthorTrust::CrossSigned => {
            DoctorCheck::bad(IDENTITIES, says, format!("nothing is sent to the rooms they are in: {hint}"))
        }
        AuthorTrust::Verified => {
            DoctorCheck::bad(IDENTITIES, says, format!("they cannot read what we write: {hint}"))
        }
    }
}

/// The rate that we keep to. A homeserver cannot be asked for the rate that it allows.
fn rate(opened: &OpenedAccount, settings: &MatrixSettings) -> DoctorCheck {
    let rate = settings.rate;
    let says =
        format!("we begin with {} messages at once, {} a second after that", rate.burst, rate.per_second);
    DoctorCheck::good(RATE_LIMITS, says).with(format!(
        "an admin of a Synapse lifts them for this account: POST /_synapse/admin/v1/users/{}/override_ratelimit \
         {{\"messages_per_second\": 0, \"burst_count\": 0}}",
        opened.own
    ))
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::UserId;

    use super::*;

    #[test]
    fn a_room_without_encryption_is_said_to_cost_all_others_something() {
        let hint = |rooms, plain, policy| joined(rooms, plain, policy).hint;
        let costs = |hint: Option<String>| hint.is_some_and(|hint| hint.contains("cost more"));

        assert_eq!(hint(3, 0, EncryptionPolicy::Required), None);
        assert_eq!(hint(3, 0, EncryptionPolicy::Optional), None);
        assert!(
            costs(hint(3, 1, EncryptionPolicy::Required)) && costs(hint(3, 1, EncryptionPolicy::Optional))
        );
        // Where no room is encrypted, nothing is lost.
        assert_eq!(hint(3, 3, EncryptionPolicy::Optional), None);
    }

    #[test]
    fn somebody_with_another_identity_is_named_with_what_follows() {
        let people = |count: usize| {
            (0..count).map(|n| UserId::parse(format!("@p{n}:example.org")).unwrap()).collect::<BTreeSet<_>>()
        };
        assert!(identities(&people(0), AuthorTrust::CrossSigned).well);
        let check = identities(&people(7), AuthorTrust::CrossSigned);
        assert!(!check.well && check.says.ends_with("@p4:example.org and 2 more"), "{check:?}");
        assert!(check.hint.unwrap().contains("nothing is sent"));
        assert!(!identities(&people(1), AuthorTrust::Verified).well);
        assert!(identities(&people(1), AuthorTrust::Network).well);
    }
}
