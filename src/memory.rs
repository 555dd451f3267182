//! Giving memory back to the system.
//!
//! Reading a large manifest takes much more memory than the result, for a moment. glibc keeps what was freed in the
//! middle of its heap: of a follower with a hundred thousand points that is 12 MB of 27, for as long as it lives.

/// Gives freed memory back to the system. Takes a moment, a millisecond for ten megabytes: to be called after something
/// large is done with, and not while anything waits.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: `malloc_trim` takes glibc's own locks, touches free memory alone, and may be called at any time by any
    // thread. Rust's allocator here is the system's, whose memory it is.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Other C libraries have no such call, and keep less.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_stays_as_it_is() {
        let blocks: Vec<Vec<u8>> = (0..200_u8).map(|n| vec![n; 10_000]).collect();
        let kept: Vec<&Vec<u8>> = blocks.iter().step_by(2).collect();
        give_back();
        assert!(kept.iter().all(|block| block.iter().all(|b| *b == block[0])));
    }
}
