//! What depends on the processor: the time stamp counter and whether it can be trusted.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_trusted_as_the_kernel_trusts_it() {
        assert!(is_tsc_trusted("tsc\n", ""));
        assert!(is_tsc_trusted("kvm-clock\n", "fpu constant_tsc nonstop_tsc"));
        assert!(!is_tsc_trusted("kvm-clock\n", "fpu constant_tsc"));
        assert!(!is_tsc_trusted("hpet\n", "constant_tsc nonstop_tsc"));
        assert!(ticks_per_ms() > 100_000);
    }
}
