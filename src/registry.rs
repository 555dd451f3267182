//! The table of protocols: one line for each.

use worker_contract::Protocol;

/// Every protocol of this build.
#[must_use]
pub fn protocols() -> &'static [&'static dyn Protocol] {
    &[
        #[cfg(feature = "modbus")]
        &worker_modbus::Modbus,
    ]
}

/// The protocol that serves a connection kind.
#[must_use]
pub fn for_kind(kind: &str) -> Option<&'static dyn Protocol> {
    protocols().iter().copied().find(|p| p.kinds().contains(&kind))
}

/// The protocol of a worker's name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Protocol> {
    protocols().iter().copied().find(|p| p.name() == name)
}
