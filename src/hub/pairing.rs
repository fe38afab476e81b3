//! A stranger in a direct chat asks to be let in.

use super::taking::One;
use crate::store::Result;

/// Gives the stranger a code, as far as the bounds permit.
pub(super) fn ask(_one: &One<'_>) -> Result<()> {
    Ok(())
}
