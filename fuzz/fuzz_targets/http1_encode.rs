//! A head that was received and then changed, to our client: it must write what a writer that does each line by itself
//! writes. The first byte says how many bytes are changes; the rest is the head.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&length, rest)) = data.split_first() else { return };
    let Some((changes, head)) = rest.split_at_checked(length.into()) else { return };
    towpath_fuzz::encode::check(changes, head);
});
