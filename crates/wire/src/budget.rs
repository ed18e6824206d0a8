//! stub
/// stub
#[repr(C, align(64))]
pub struct Budget {}
/// stub
#[repr(C, align(64))]
pub struct Purse {}
