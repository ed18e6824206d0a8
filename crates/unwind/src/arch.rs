//! What depends on the processor: how its registers are numbered in the tables (System V ABI, AMD64 supplement).

/// The frame pointer, rbp.
pub(crate) const BP: u64 = 6;
/// The stack pointer, rsp.
pub(crate) const SP: u64 = 7;
/// The return address.
pub(crate) const RETURN: u64 = 16;
/// Where the return address lies, from the frame's own address.
pub(crate) const RETURN_AT: i32 = -8;
/// What stack slots are a multiple of.
pub(crate) const SLOT: i32 = 8;

/// The address of a frame in a procedure linkage table, as linkers write it: 8 more from the entry's byte 11 (or 10) on. The
/// byte that differs stands for that.
pub(crate) const LINKAGE: [u8; 11] =
    [0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
/// Where in it that byte stands.
pub(crate) const LINKAGE_PUSH: usize = 6;
