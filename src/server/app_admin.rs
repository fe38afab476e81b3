//! Makes and revokes the tokens of apps, in the transactions of those who may: the operator at the command line, and
//! `/admin/tokens`.

use talaria_platform::RoomId;

use crate::ids::{HTTP, SessionId, TurnId};
use crate::store::{AppRights, OperatorAction, Result, Tx};
use crate::token::{self, TokenDigest};

/// Tries to find a token with an unused id. A second one is needed once in four billion.
const TRIES: usize = 8;

/// Result of revoking a token.
pub enum Revocation {
    /// It is revoked. These turns of the app were asked to stop; after the commit the caller stops them.
    Revoked(Vec<(SessionId, TurnId)>),
    /// It was revoked before.
    Before,
    /// No app has this name.
    Unknown,
}

/// Gives an app a new token with these rights, in place of an earlier one. `None` if there are no random numbers.
pub fn new_token(tx: &Tx<'_>, prefix: &str, app: &str, rights: &AppRights) -> Result<Option<String>> {
    for _ in 0..TRIES {
        let Ok(token) = token::make(prefix) else { return Ok(None) };
        let Some(kept) = TokenDigest::of(&token) else { return Ok(None) };
        if tx.add_token(app, &kept, rights)? {
            return Ok(Some(token));
        }
    }
    Ok(None)
}

/// Revokes the token of an app and asks its open turns to stop.
pub fn revoke(tx: &Tx<'_>, actor: &str, app: &str) -> Result<Revocation> {
    if !tx.revoke_token(app)? {
        return Ok(if tx.app(app)?.is_some() { Revocation::Before } else { Revocation::Unknown });
    }
    audit(tx, actor, app, "revoke token")?;
    let open = tx.open_turns_of_app(app)?;
    open.iter().try_for_each(|(_, turn)| tx.ask_to_stop(turn))?;
    Ok(Revocation::Revoked(open))
}

/// Stores what was done to the token of an app, and by whom.
pub fn audit(tx: &Tx<'_>, actor: &str, app: &str, what: &str) -> Result<()> {
    tx.audit_operator(&OperatorAction {
        account: HTTP,
        actor,
        room: Some(&RoomId::from(app)),
        action: &format!("{what} of {app}"),
        allowed: true,
        rule: "operator",
    })
}
