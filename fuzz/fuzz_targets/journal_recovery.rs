#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sensor_poll_fuzz::journal::recovery(data));
