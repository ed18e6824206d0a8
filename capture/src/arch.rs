//! What depends on the processor: system calls, the time stamp counter, the thread's word.
//!
//! System calls are made directly, never through libc: errno stays as the program left it, and no
//! function that the program, or a library of its, has wrapped is entered.

use core::arch::{asm, global_asm};

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("heaptape runs on x86-64 Linux only; other systems have no capture library yet");

pub const SYS_READ: usize = 0;
pub const SYS_WRITE: usize = 1;
pub const SYS_CLOSE: usize = 3;
pub const SYS_FSTAT: usize = 5;
pub const SYS_MMAP: usize = 9;
pub const SYS_MPROTECT: usize = 10;
pub const SYS_MUNMAP: usize = 11;
pub const SYS_RT_SIGPROCMASK: usize = 14;
pub const SYS_PREAD64: usize = 17;
pub const SYS_PWRITE64: usize = 18;
pub const SYS_ACCESS: usize = 21;
pub const SYS_MADVISE: usize = 28;
pub const SYS_SHMCTL: usize = 31;
pub const SYS_NANOSLEEP: usize = 35;
pub const SYS_GETPID: usize = 39;
pub const SYS_GETPPID: usize = 110;
pub const SYS_FSTATFS: usize = 138;
pub const SYS_MUNLOCK: usize = 150;
pub const SYS_GETTID: usize = 186;
pub const SYS_PRLIMIT64: usize = 302;
pub const SYS_READLINK: usize = 89;
pub const SYS_EXIT_GROUP: usize = 231;
pub const SYS_OPENAT: usize = 257;
pub const SYS_SECCOMP: usize = 317;
pub const SYS_CLONE: usize = 56;
pub const SYS_EXECVE: usize = 59;
pub const SYS_EXIT: usize = 60;
pub const SYS_WAIT4: usize = 61;
pub const SYS_KILL: usize = 62;
pub const SYS_FCNTL: usize = 72;
pub const SYS_RT_SIGPENDING: usize = 127;
pub const SYS_RT_SIGTIMEDWAIT: usize = 128;
pub const SYS_WAITID: usize = 247;
pub const SYS_PIPE2: usize = 293;
pub const SYS_MEMBARRIER: usize = 324;
pub const SYS_FORK: usize = 57;
pub const SYS_CLONE3: usize = 435;
pub const SYS_TGKILL: usize = 234;
pub const SYS_PROCESS_VM_READV: usize = 310;

/// Makes a system call; a value in `-4095..0` is a negated error number.
///
/// # Safety
/// As the call with these arguments is.
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; what the call does is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Begins a child that shares this memory, and runs `entry` in it on a stack whose end is `top`, with `argument`.
/// This thread waits until the child has become another program or has ended.
/// Returns its process id, or a negated error number.
///
/// # Safety
/// The stack is nobody else's, and `entry` makes system calls alone.
pub unsafe fn vfork(
    top: *mut u8,
    entry: unsafe extern "C" fn(*const u8) -> !,
    argument: *const u8,
) -> isize {
    const CLONE_VM_VFORK: usize = 0x4100;
    let result: isize;
    let top = top as usize & !15;
    // SAFETY: the child begins with these registers, on its own stack; the rest is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") SYS_CLONE as isize => result,
            in("rdi") CLONE_VM_VFORK, in("rsi") top, in("rdx") 0usize,
            in("r10") 0usize, in("r8") 0usize,
            in("r12") entry, in("r13") argument,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// What a system call without arguments answers that fails in a sandbox only; 0 then.
pub fn ask(number: usize) -> u32 {
    // SAFETY: only used for getpid, getppid and gettid, which touch nothing.
    u32::try_from(unsafe { syscall(number, [0; 6]) }).unwrap_or(0)
}

/// Where the thread's descriptor is, as the calling convention for threads has it.
pub fn thread_pointer() -> usize {
    let address: usize;
    // SAFETY: reads the descriptor's first word, which is its own address.
    unsafe {
        asm!("mov {0}, qword ptr fs:[0]", out(reg) address, options(nostack, readonly, preserves_flags));
    }
    address
}

/// Where in a thread's descriptor libc notes the kernel's number of it, see [`noted_thread`].
pub const NOTED_AT: usize = 0x2d0;

/// The kernel's number of the thread, as libc has noted it for itself; what is read is right only in
/// versions of glibc that keep it there.
pub fn noted_thread() -> u32 {
    let number: u32;
    // SAFETY: reads a word of the thread's own descriptor, which is longer than that.
    unsafe {
        asm!("mov {0:e}, dword ptr fs:[{1}]", out(reg) number, const NOTED_AT, options(nostack, readonly, preserves_flags));
    }
    number
}

/// The time stamp counter, read after every load before it has its value, and before any store after it
/// can be seen.
///
/// The second comes by itself: a store is seen after it has retired, and that is after this has. The
/// first takes the fence. Without it the processor may read the counter before the load that handed
/// the block over, and its release by this thread would seem to come before its allocation by another.
#[inline(always)]
pub fn stamp() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register.
    unsafe { asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Adds to a word that only this thread and its signal handlers touch, in one instruction, so that no handler
/// comes between the reading and the writing.
///
/// # Safety
/// `word` is valid.
#[inline(always)]
pub unsafe fn add_to(word: *mut u64, more: u64) {
    // SAFETY: as promised.
    unsafe { asm!("add qword ptr [{0}], {1}", in(reg) word, in(reg) more, options(nostack)) };
}

/// Adds one, in the same way.
///
/// # Safety
/// `word` is valid.
#[inline(always)]
pub unsafe fn count_up(word: *mut u64) {
    // SAFETY: as promised.
    unsafe { asm!("add qword ptr [{0}], 1", in(reg) word, options(nostack)) };
}

/// Takes one away, in the same way; whether the highest bit is set then.
///
/// # Safety
/// `word` is valid.
#[inline(always)]
pub unsafe fn count_down(word: *mut u64) -> bool {
    // SAFETY: as promised.
    unsafe {
        asm!("sub qword ptr [{0}], 1", "js {1}", in(reg) word, label { return true }, options(nostack));
    }
    false
}

/// Tells the processor that this is a waiting loop.
pub fn relax() {
    core::hint::spin_loop();
}

/// A thread-local word in the initial-exec model: no call, no allocation, valid in every thread from
/// its first instruction on. (`thread_local!` in a shared library is the dynamic model, which may
/// allocate.)
macro_rules! thread_local_word {
    ($symbol:literal, $(#[$about:meta])* $get:ident, $set:ident) => {
        global_asm!(
            ".pushsection .tbss,\"awT\",@nobits",
            ".balign 8",
            concat!(".hidden ", $symbol),
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ", @object"),
            concat!(".size ", $symbol, ", 8"),
            concat!($symbol, ": .zero 8"),
            ".popsection",
        );

        $(#[$about])*
        #[inline(always)]
        pub fn $get() -> usize {
            let word: usize;
            // SAFETY: reads the thread's own word.
            unsafe {
                asm!(
                    concat!("mov {0}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov {0}, qword ptr fs:[{0}]",
                    out(reg) word,
                    options(nostack, readonly, preserves_flags),
                );
            }
            word
        }

        /// Sets that word.
        pub fn $set(word: usize) {
            // SAFETY: writes the thread's own word.
            unsafe {
                asm!(
                    concat!("mov {1}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov qword ptr fs:[{1}], {0}",
                    in(reg) word, out(reg) _,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

thread_local_word!(
    "heaptape_thread",
    /// The thread's [`crate::slot::ThreadSlot`], or null.
    thread_word,
    set_thread_word
);
thread_local_word!(
    "heaptape_fork",
    /// The number of the fork that the thread is in, or 0.
    fork_word,
    set_fork_word
);
thread_local_word!(
    "heaptape_starting",
    /// How many times the thread is in `MPI_Init`.
    starting_word,
    set_starting_word
);
thread_local_word!(
    "heaptape_asking",
    /// How the thread stands with an allocator that it asks for sizes: see [`crate::asking`].
    asking_word,
    set_asking_word
);
thread_local_word!(
    "heaptape_loading",
    /// Not 0 while the thread may be in `dlopen`: see [`crate::loading`].
    loading_word,
    set_loading_word
);

/// Puts the first three arguments on the stack; every step is told, as a signal may come between any two, and its
/// handler's stack is walked through here.
macro_rules! push_arguments {
    () => {
        concat!(
            "push rdx\n.cfi_adjust_cfa_offset 8\n",
            "push rsi\n.cfi_adjust_cfa_offset 8\n",
            "push rdi\n.cfi_adjust_cfa_offset 8\n",
        )
    };
}

/// Takes them back.
macro_rules! pop_arguments {
    () => {
        concat!(
            "pop rdi\n.cfi_adjust_cfa_offset -8\n",
            "pop rsi\n.cfi_adjust_cfa_offset -8\n",
            "pop rdx\n.cfi_adjust_cfa_offset -8\n",
        )
    };
}

/// The site of the call, in rax, with the arguments on the stack.
macro_rules! take_site {
    () => {
        "mov rdi, rbp\nlea rsi, [rsp + 24]\ncall {site}\n"
    };
}

/// Defines an exported function that hands its arguments and its caller's address on to `$entry`,
/// which takes the caller as one argument more. The stack is as the caller left it, so unwinders see
/// nothing unusual.
macro_rules! with_caller {
    ($name:ident, 0, $entry:path) => { with_caller!(@ $name, "mov rdi, [rsp]", $entry); };
    ($name:ident, 1, $entry:path) => { with_caller!(@ $name, "mov rsi, [rsp]", $entry); };
    ($name:ident, 2, $entry:path) => { with_caller!(@ $name, "mov rdx, [rsp]", $entry); };
    ($name:ident, 3, $entry:path) => { with_caller!(@ $name, "mov rcx, [rsp]", $entry); };
    ($name:ident, 4, $entry:path) => { with_caller!(@ $name, "mov r8, [rsp]", $entry); };
    ($name:ident, 5, $entry:path) => { with_caller!(@ $name, "mov r9, [rsp]", $entry); };
    (@ $name:ident, $move:literal, $entry:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            // Who patches it may write 13 bytes or so, which must not reach the next function.
            core::arch::naked_asm!($move, "jmp {entry}", ".fill 8, 1, 0xcc", entry = sym $entry)
        }
    };
    // The seventh argument goes on the stack.
    ($name:ident, 6, $entry:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push qword ptr [rsp]",
                ".cfi_adjust_cfa_offset 8",
                "call {entry}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                entry = sym $entry,
            )
        }
    };
}

/// The same for a function that allocates: while stacks are wanted, `$entry` gets the call's site in the place of the
/// caller's address.
macro_rules! with_site {
    ($name:ident, 1, $entry:path) => { with_site!(@ $name, "rsi", $entry); };
    ($name:ident, 2, $entry:path) => { with_site!(@ $name, "rdx", $entry); };
    ($name:ident, 3, $entry:path) => { with_site!(@ $name, "rcx", $entry); };
    (@ $name:ident, $register:literal, $entry:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "cmp dword ptr [rip + {depth}], 0",
                "jne 2f",
                concat!("mov ", $register, ", [rsp]"),
                "jmp {entry}",
                "2:",
                crate::arch::push_arguments!(),
                crate::arch::take_site!(),
                crate::arch::pop_arguments!(),
                concat!("mov ", $register, ", rax"),
                "jmp {entry}",
                ".fill 8, 1, 0xcc",
                ".cfi_endproc",
                depth = sym crate::callstack::DEPTH,
                site = sym crate::callstack::site,
                entry = sym $entry,
            )
        }
    };
}

/// Defines an exported `operator new`: `$entry` tries (with the caller in the fourth argument), and
/// only when it has no memory is the next `operator new`, which `$next` finds, called with the same
/// arguments; it calls the new-handler and throws, through this frame. What it returns goes through
/// `$made`.
macro_rules! operator_new {
    ($name:ident, $entry:path, $next:path, $made:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "mov rcx, [rsp]",
                crate::arch::push_arguments!(),
                "cmp dword ptr [rip + {depth}], 0",
                "jne 4f",
                "3:",
                "call {entry}",
                crate::arch::pop_arguments!(),
                "test rax, rax",
                "jz 2f",
                "ret",
                "2:",
                "mov rcx, [rsp]",
                crate::arch::push_arguments!(),
                "cmp dword ptr [rip + {depth}], 0",
                "jne 6f",
                "5:",
                "call {next}",
                crate::arch::pop_arguments!(),
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call rax",
                "mov rdi, rax",
                "call {made}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_adjust_cfa_offset 24",
                "4:",
                crate::arch::take_site!(),
                "mov rcx, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "jmp 3b",
                "6:",
                crate::arch::take_site!(),
                "mov rcx, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "jmp 5b",
                ".cfi_endproc",
                depth = sym crate::callstack::DEPTH,
                site = sym crate::callstack::site,
                entry = sym $entry,
                next = sym $next,
                made = sym $made,
            )
        }
    };
}

/// Defines an exported function that lets `$mark` see its arguments and then becomes the next function,
/// which so finds the stack, the arguments and the caller it would have had without us.
/// (`dlopen` looks for libraries by its caller's run path.)
macro_rules! seen_in_passing {
    ($name:ident, $mark:path, $next:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                ".cfi_adjust_cfa_offset 56",
                "call {mark}",
                "call {next}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                "jmp r11",
                ".cfi_endproc",
                mark = sym $mark,
                next = sym $next,
            )
        }
    };
}

/// Defines an exported function of the `execl` family: its arguments, which lie in registers and on
/// the stack, are handed to `$entry` as (first argument, the five others, those on the stack).
macro_rules! exec_list {
    ($name:ident, $entry:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "lea rax, [rsp + 8]",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                ".cfi_adjust_cfa_offset 40",
                "mov rsi, rsp",
                "mov rdx, rax",
                "call {entry}",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                "ret",
                ".cfi_endproc",
                entry = sym $entry,
            )
        }
    };
}

pub(crate) use {
    exec_list, operator_new, pop_arguments, push_arguments, seen_in_passing, take_site,
    with_caller, with_site,
};

/// The processor fetches what lies there, if it may; what reads it next waits the less.
#[inline(always)]
pub fn prefetch<T>(place: *const T) {
    // SAFETY: a hint, which fails nowhere.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place.cast())
    };
}
