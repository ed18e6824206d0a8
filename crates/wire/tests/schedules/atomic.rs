//! Stands in for `crate::atomic`: words in a simulated memory with a store buffer a core, as x86 has it.
//!
//! A plain store waits in its core's buffer, where only that core sees it; locked instructions drain the buffer first.
//! Every access is a step, before which the scheduler may let others run or a signal handler come.

use crate::machine::{drain, load, step, store};
use std::cell::Cell;

pub use std::sync::atomic::Ordering;

macro_rules! atomic {
    ($name:ident, $int:ty) => {
        #[derive(Default)]
        pub struct $name(Cell<u64>);

        impl $name {
            pub fn load(&self, order: Ordering) -> $int {
                step();
                load(&self.0, order) as $int
            }

            pub fn store(&self, value: $int, order: Ordering) {
                step();
                store(&self.0, u64::from(value), order);
            }

            pub fn compare_exchange(
                &self,
                from: $int,
                to: $int,
                _: Ordering,
                _: Ordering,
            ) -> Result<$int, $int> {
                let now = self.locked(|now| if now == from { to } else { now });
                if now == from { Ok(now) } else { Err(now) }
            }

            pub fn fetch_add(&self, more: $int, _: Ordering) -> $int {
                self.locked(|now| now.wrapping_add(more))
            }

            pub fn fetch_sub(&self, less: $int, _: Ordering) -> $int {
                self.locked(|now| now.wrapping_sub(less))
            }

            pub fn fetch_or(&self, bits: $int, _: Ordering) -> $int {
                self.locked(|now| now | bits)
            }

            pub fn fetch_and(&self, bits: $int, _: Ordering) -> $int {
                self.locked(|now| now & bits)
            }

            pub fn fetch_max(&self, least: $int, _: Ordering) -> $int {
                self.locked(|now| now.max(least))
            }

            fn locked(&self, change: impl Fn($int) -> $int) -> $int {
                step();
                drain();
                let now = self.0.get() as $int;
                self.0.set(u64::from(change(now)));
                now
            }

            pub fn cell(&self) -> &Cell<u64> {
                &self.0
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
