//! Memory that processes share: each object once in a counted job, from its first mapping to its last
//! unmapping.
//!
//! An [`Object`] knows the processes that have it mapped, and the bytes that are charged for it: as far as it
//! is mapped from its beginning. Whoever changes it marks it as his for that time, and others wait at it.
//! When a process dies the collector [buries](Ledger::bury) it: what nobody else has is given back.
//!
//! What is charged for an object may be spent by one process and refunded by another. So each account
//! keeps what its process has spent for objects and not refunded, which may be less than nothing:
//! that part of what a dead process held goes on with the job.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::budget::Machine;
#[cfg(not(loom))]
use crate::ledger::Ledger;
use crate::ledger::{Account, Kind};
use crate::process::SLOTS;

/// Objects of a job at the same time; those beyond are not charged.
pub const OBJECTS: usize = 1024;
/// Bytes of an object.
pub const OBJECT_BYTES: usize = 192;

/// What an object is known by, in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// What kind of number it is: the device, or one of the constants. Never 0.
    pub place: u64,
    /// The inode there, or another number that is this object's alone.
    pub number: u64,
}

impl Key {
    /// The number is that of a SysV segment.
    pub const SYSV: u64 = u64::MAX;
    /// The object has no name at all: the number was made up by the process that made it.
    pub const NAMELESS: u64 = u64::MAX - 1;
}

/// One object. Zeroed memory is a free place.
#[repr(C, align(64))]
pub struct Object {
    /// The slot plus one of the process that changes it, 16 bits; whether the place is taken, 1; and, from bit
    /// 32 on, how often it was.
    state: AtomicU64,
    key: [AtomicU64; 2],
    /// Bytes that are charged.
    bytes: AtomicU64,
    /// Whose row they stand in: the generation above the slot.
    owner: AtomicU64,
    /// The row: a [`Kind`].
    kind: AtomicU32,
    /// The processes that have it, a bit a slot.
    users: [AtomicU64; SLOTS / 64],
}

const CHANGER: u64 = 0xffff;
const TAKEN: u64 = 1 << 16;
const TURN: u64 = 1 << 32;

fn changed_by(slot: u32) -> u64 {
    u64::from(slot) + 1
}

impl Object {
    fn key(&self) -> Key {
        let [place, number] = self.key.each_ref().map(|word| word.load(Ordering::Relaxed));
        Key { place, number }
    }

    /// Bytes that are charged for it.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// The row that they stand in.
    pub fn kind(&self) -> Kind {
        if self.kind.load(Ordering::Relaxed) == Kind::MpiRuntime as u32 {
            Kind::MpiRuntime
        } else {
            Kind::Shared
        }
    }

    fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// Marks it as being changed by this process, if it was in that state and nobody changes it.
    fn begin(&self, state: u64, slot: u32) -> bool {
        let new = state | changed_by(slot);
        state & CHANGER == 0
            && self.state.compare_exchange(state, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends that; a place that has no users is free.
    fn end(&self, state: u64) {
        let has_users = self.users.iter().any(|users| users.load(Ordering::Relaxed) != 0);
        let taken = if has_users { TAKEN } else { 0 };
        self.state.store(state & !(CHANGER | TAKEN) | taken, Ordering::Release);
    }

    fn user(&self, slot: u32) -> (&AtomicU64, u64) {
        (&self.users[slot as usize / 64 % (SLOTS / 64)], 1 << (slot % 64))
    }

    /// Whether a process has it.
    pub fn has_user(&self, slot: u32) -> bool {
        let (word, bit) = self.user(slot);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn is_last(&self, slot: u32) -> bool {
        let (own, bit) = self.user(slot);
        self.users.iter().all(|users| {
            let others = if core::ptr::eq(users, own) { !bit } else { u64::MAX };
            users.load(Ordering::Relaxed) & others == 0
        })
    }
}

/// The word with which one process at a time gives a free place to a new object, and how many there are.
#[repr(C, align(64))]
pub struct Door {
    /// The slot plus one of the process that adds an object.
    adding: AtomicU32,
    /// Places that were ever given away.
    used: AtomicU32,
}

/// Why an object was not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// What would have to be charged does not fit.
    Refused,
    /// There are too many objects, or somebody died in the middle of a change and was not buried yet.
    Unknown,
}

/// The process that acts, and how it waits.
pub struct Actor<'a, M> {
    /// Its slot …
    pub slot: u32,
    /// … and that slot's generation.
    pub generation: u32,
    /// The row in which a new object stands.
    pub kind: Kind,
    /// How it waits.
    pub machine: &'a M,
}

impl<M> Actor<'_, M> {
    fn owner(&self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
}

#[cfg(not(loom))]
impl Ledger {
    /// An object of the job.
    pub fn object(self, index: usize) -> &'static Object {
        self.object_at(index % OBJECTS)
    }

    fn objects(self) -> impl Iterator<Item = (usize, &'static Object)> {
        let used = self.door().used.load(Ordering::Acquire) as usize;
        (0..used.min(OBJECTS)).map(move |index| (index, self.object(index)))
    }

    fn find(self, key: Key) -> Option<(usize, u64)> {
        self.objects().find_map(|(index, object)| {
            let state = object.state();
            let is_it = state & (TAKEN | CHANGER) != 0 && object.key() == key;
            (is_it && object.state() == state).then_some((index, state))
        })
    }

    /// Makes a process one of the users of the object with this key, of which `bytes` are about to be mapped,
    /// and charges by `spend` what is not charged yet; the object's number.
    pub fn enter<M: Machine>(
        self,
        key: Key,
        bytes: u64,
        actor: &Actor<'_, M>,
        spend: impl FnOnce(Kind, u64) -> bool,
    ) -> Result<usize, Outside> {
        for round in 0.. {
            let begun = match self.find(key) {
                Some((index, state)) => {
                    let has_begun = self.object(index).begin(state, actor.slot);
                    has_begun.then_some((index, state))
                }
                None => self.add(key, actor)?,
            };
            if let Some((index, state)) = begun {
                let object = self.object(index);
                let is_paid = self.pay(object, bytes, spend);
                if is_paid {
                    let (word, bit) = object.user(actor.slot);
                    word.fetch_or(bit, Ordering::Relaxed);
                }
                object.end(state);
                return if is_paid { Ok(index) } else { Err(Outside::Refused) };
            }
            if !actor.machine.wait(round) {
                break;
            }
        }
        Err(Outside::Unknown)
    }

    fn pay(self, object: &Object, bytes: u64, spend: impl FnOnce(Kind, u64) -> bool) -> bool {
        let more = bytes.saturating_sub(object.bytes());
        let is_paid = more == 0 || spend(object.kind(), more);
        if is_paid {
            if let Some(row) = self.row_of(object) {
                row.fetch_add(more, Ordering::Relaxed);
            }
            object.bytes.fetch_add(more, Ordering::Release);
        }
        is_paid
    }

    /// Gives a free place to a new object, which the actor is changing then; its number, and its state
    /// without that. `None`: it may be there already, or others are adding.
    fn add<M>(self, key: Key, actor: &Actor<'_, M>) -> Result<Option<(usize, u64)>, Outside> {
        let adding = &self.door().adding;
        let ours = actor.slot + 1;
        if adding.compare_exchange(0, ours, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Ok(None);
        }
        let is_there = self.find(key).is_some();
        let is_free = |index: &usize| self.object(*index).state() & (TAKEN | CHANGER) == 0;
        let place = if is_there { None } else { (0..OBJECTS).find(is_free) };
        if let Some(index) = place {
            let object = self.object(index);
            object.key[0].store(key.place, Ordering::Relaxed);
            object.key[1].store(key.number, Ordering::Relaxed);
            object.bytes.store(0, Ordering::Relaxed);
            object.owner.store(actor.owner(), Ordering::Relaxed);
            object.kind.store(actor.kind as u32, Ordering::Relaxed);
            let state = object.state().wrapping_add(TURN) | changed_by(actor.slot);
            object.state.store(state, Ordering::Release);
            self.door().used.fetch_max(index as u32 + 1, Ordering::Release);
        }
        adding.store(0, Ordering::Release);
        match place {
            Some(index) => Ok(Some((index, self.object(index).state() & !CHANGER))),
            None if is_there => Ok(None),
            None => Err(Outside::Unknown),
        }
    }

    /// Takes a process from the users of an object. After the last one `refund` gives back what was charged.
    /// (Where others change it for too long it stays one until it ends.)
    pub fn leave<M: Machine>(
        self,
        index: usize,
        actor: &Actor<'_, M>,
        refund: impl FnOnce(Kind, u64),
    ) {
        let object = self.object(index);
        for round in 0.. {
            let state = object.state();
            if object.begin(state, actor.slot) {
                if object.is_last(actor.slot) {
                    // Who dies before he has given it back leaves it charged.
                    refund(object.kind(), self.clear(object));
                }
                let (word, bit) = object.user(actor.slot);
                word.fetch_and(!bit, Ordering::Relaxed);
                return object.end(state);
            }
            if !actor.machine.wait(round) {
                return;
            }
        }
    }

    /// Takes the charge off an object; its bytes.
    fn clear(self, object: &Object) -> u64 {
        let bytes = object.bytes.swap(0, Ordering::AcqRel);
        if let Some(row) = self.row_of(object) {
            row.fetch_sub(bytes, Ordering::Relaxed);
        }
        bytes
    }

    /// The row in which an object stands, while the process that brought it has its account.
    fn row_of(self, object: &Object) -> Option<&'static AtomicU64> {
        let owner = object.owner.load(Ordering::Relaxed);
        let account = self.account(owner as u32 as usize);
        let is_its = account.generation() == (owner >> 32) as u32;
        is_its.then(|| &account.charged[object.kind() as usize])
    }

    /// What is charged for all objects in the row [`Kind::Shared`].
    pub fn charged_for_objects(self) -> u64 {
        let shared = self.objects().filter(|(_, object)| object.kind() == Kind::Shared);
        shared.map(|(_, object)| object.bytes()).fold(0, u64::saturating_add)
    }

    /// What is charged for all objects, in whatever row.
    pub fn bytes_of_objects(self) -> u64 {
        self.objects().map(|(_, object)| object.bytes()).fold(0, u64::saturating_add)
    }

    /// Collector: the process with this slot is gone, or is another program now, which has nothing mapped
    /// of what it had: takes it from the users of its objects. `refund` gives back what nobody has any more.
    pub fn bury<M: Machine>(self, slot: u32, machine: &M, mut refund: impl FnMut(Kind, u64)) {
        let adding = &self.door().adding;
        let _ = adding.compare_exchange(slot + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
        let actor = Actor { slot, generation: 0, kind: Kind::Shared, machine };
        for (index, object) in self.objects() {
            let state = object.state();
            let was_changing = state & CHANGER == changed_by(slot);
            if was_changing {
                object.state.store(state & !CHANGER, Ordering::Release);
            }
            if was_changing || object.has_user(slot) {
                self.leave(index, &actor, &mut refund);
            }
        }
    }
}

impl Account {
    /// Process: so many bytes more were spent for objects than refunded.
    pub fn spend_for_objects(&self, bytes: i64) {
        self.for_objects.fetch_add(bytes as u64, Ordering::Relaxed);
        self.note_beside(bytes as u64);
    }

    /// Bytes that it has spent for objects and not refunded: less than nothing for one that gave back what
    /// others had spent.
    pub fn spent_for_objects(&self) -> i64 {
        self.for_objects.load(Ordering::Relaxed) as i64
    }
}
