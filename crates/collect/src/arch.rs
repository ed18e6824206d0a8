//! What depends on the processor: the time stamp counter and whether it can be trusted; how code jumps.

use std::time::{Duration, Instant};

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("heaptape runs on x86-64 Linux only; other systems have no collector yet");

/// The time stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a register that every x86-64 processor has.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks of the time stamp counter in a millisecond, to about one per cent.
pub(crate) fn ticks_per_ms() -> u32 {
    let (start, from) = (Instant::now(), ticks());
    while start.elapsed() < Duration::from_micros(300) {
        std::hint::spin_loop();
    }
    let (elapsed, passed) = (start.elapsed(), ticks() - from);
    let per_ms = u128::from(passed) * 1_000_000 / elapsed.as_nanos().max(1);
    u32::try_from(per_ms).unwrap_or(u32::MAX).max(1)
}

/// Whether the kernel itself keeps time by the counter, which it does only while the counters of all
/// processors agree; under a paravirtual clock, whether the processor promises the same.
pub(crate) fn is_tsc_trusted(clock_source: &str, cpu_flags: &str) -> bool {
    let has = |flag| cpu_flags.split_whitespace().any(|f| f == flag);
    match clock_source.trim() {
        "tsc" => true,
        "kvm-clock" | "hyperv_clocksource_tsc_page" => has("constant_tsc") && has("nonstop_tsc"),
        _ => false,
    }
}

/// Where code goes that was put over the begin of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// To this address.
    To(u64),
    /// To the address that stands at this one.
    Through(u64),
}

/// The jump that code at an address begins with, if it is one that patchers write.
pub(crate) fn jump(code: &[u8], at: u64) -> Option<Jump> {
    /// A mark for control flow, which may come first.
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    if let Some(rest) = code.strip_prefix(ENDBR64) {
        return jump(rest, at.wrapping_add(4));
    }
    let word =
        |bytes: &[u8]| bytes.first_chunk().map(|&bytes| i64::from(i32::from_le_bytes(bytes)));
    let whole = |bytes: &[u8]| bytes.first_chunk().map(|&bytes| u64::from_le_bytes(bytes));
    let near = |length: u64, offset: i64| at.wrapping_add(length).wrapping_add_signed(offset);
    match code {
        // jmp rel32, jmp rel8
        [0xe9, rest @ ..] => Some(Jump::To(near(5, word(rest)?))),
        [0xeb, offset, ..] => Some(Jump::To(near(2, i64::from(*offset as i8)))),
        // jmp *rel32(%rip)
        [0xff, 0x25, rest @ ..] => Some(Jump::Through(near(6, word(rest)?))),
        // movabs $address, %r11 or %rax; jmp *%r11 or *%rax
        [0x49, 0xbb, rest @ ..] if rest.get(8..11) == Some(&[0x41, 0xff, 0xe3]) => {
            whole(rest).map(Jump::To)
        }
        [0x48, 0xb8, rest @ ..] if rest.get(8..10) == Some(&[0xff, 0xe0]) => {
            whole(rest).map(Jump::To)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jumps_of_patchers_are_followed() {
        let to = |address| Some(Jump::To(address));
        assert_eq!(jump(&[0xe9, 0x10, 0, 0, 0], 0x1000), to(0x1015));
        assert_eq!(
            jump(&[0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 0xfb, 0xff, 0xff, 0xff], 0x1000),
            to(0x1004)
        );
        assert_eq!(jump(&[0xeb, 0xfe, 0], 0x1000), to(0x1000));
        assert_eq!(jump(&[0xff, 0x25, 0, 0, 0, 0], 0x1000), Some(Jump::Through(0x1006)));
        let far = [0x49, 0xbb, 8, 7, 6, 5, 4, 3, 2, 1, 0x41, 0xff, 0xe3];
        assert_eq!(jump(&far, 0x1000), to(0x0102_0304_0506_0708));
        let far = [0x48, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0];
        assert_eq!(jump(&far, 0x1000), to(1));
        for code in [&[][..], &[0xe9, 1], &far[..11], &[0x55, 0x48, 0x89, 0xe5], &[0xcc]] {
            assert_eq!(jump(code, 0x1000), None);
        }
    }

    #[test]
    fn the_counter_is_trusted_as_the_kernel_trusts_it() {
        assert!(is_tsc_trusted("tsc\n", ""));
        assert!(is_tsc_trusted("kvm-clock\n", "fpu constant_tsc nonstop_tsc"));
        assert!(!is_tsc_trusted("kvm-clock\n", "fpu constant_tsc"));
        assert!(!is_tsc_trusted("hpet\n", "constant_tsc nonstop_tsc"));
        assert!(ticks_per_ms() > 100_000);
    }
}
