//! See the layer diagram in the crate's root.
