//! The functions of libc, and of other libraries, that ours stand before, beside the allocator's.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::next::{self, symbol};

/// A next function beside the allocator's.
///
/// Those of libc, made by [`following!`], are looked up with the allocator's. Later a look-up could wait
/// for the loader's lock, which a thread may hold that waits for us. Those of other libraries, made by
/// [`Following::later`], are looked up when they are needed: the library may come at any time, and
/// the loader takes memory, from an allocator that has just begun, to say that there is no such symbol.
#[repr(C)]
pub struct Following {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Following {
    /// One that is looked up when it is needed.
    pub const fn later(name: &'static CStr) -> Following {
        Following { name, address: AtomicUsize::new(0) }
    }

    /// Its name.
    pub fn name(&self) -> &'static CStr {
        self.name
    }

    /// Its address; 0 when there is none.
    pub fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.late(),
            known => known,
        }
    }

    /// Its address, as far as it is known: for what may be missing and is not worth another look-up; 0 when there is none.
    pub fn known(&self) -> usize {
        self.address.load(Ordering::Relaxed)
    }

    /// A call before all others, or of what libc may lack or is not libc's.
    #[cold]
    fn late(&self) -> usize {
        next::look_up();
        if self.address.load(Ordering::Relaxed) == 0 {
            self.look_up();
        }
        self.address.load(Ordering::Relaxed)
    }

    fn look_up(&self) {
        self.address.store(symbol(self.name), Ordering::Relaxed);
    }
}

/// Defines a [`Following`] of libc, which [`look_up_all`] finds.
macro_rules! following {
    ($(#[$about:meta])* $visible:vis static $name:ident = $symbol:expr) => {
        $(#[$about])*
        #[unsafe(link_section = "heaptape_following")]
        $visible static $name: $crate::following::Following = $crate::following::Following::later($symbol);
    };
}
pub(crate) use following;

/// Looks up all that [`following!`] defines.
pub fn look_up_all() {
    for following in all() {
        following.look_up();
    }
}

// The linker's names for the two ends of the section are the library's own business.
core::arch::global_asm!(".hidden __start_heaptape_following", ".hidden __stop_heaptape_following");

/// All that [`following!`] defines.
fn all() -> &'static [Following] {
    unsafe extern "C" {
        // The linker's names for the two ends of the section.
        static __start_heaptape_following: u8;
        static __stop_heaptape_following: u8;
    }
    // SAFETY: the section holds nothing but these.
    unsafe {
        let start = (&raw const __start_heaptape_following).cast::<Following>();
        let stop = (&raw const __stop_heaptape_following).cast::<Following>();
        core::slice::from_raw_parts(start, stop.offset_from(start) as usize)
    }
}
