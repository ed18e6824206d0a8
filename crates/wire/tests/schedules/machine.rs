//! A simulated machine: cores that are fibers, memory with store buffers, a scheduler that plays dice.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// What is broken on purpose, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// The barrier reaches nobody.
    NoBarrier,
    /// The quick path does not see attention.
    Blind,
    /// A thief waits for nobody.
    Hasty,
}

type Task = Box<dyn FnOnce()>;

#[derive(Default)]
struct Core {
    buffer: VecDeque<(*const Cell<u64>, u64)>,
    /// An unlocked addition between its load and its store.
    midway: Option<(*const Cell<u64>, u64)>,
    yielder: Option<*const Yielder<(), ()>>,
    handler: Option<Task>,
    process: usize,
    over: bool,
}

struct State {
    dice: u64,
    clock: u64,
    current: Option<usize>,
    cores: Vec<Core>,
    fault: Fault,
    /// One in so many steps lets others run.
    calm: u64,
    /// One in so many turns brings a store from a buffer to memory.
    lazy: u64,
    dead: Option<(usize, u64)>,
    mended: u64,
    given_up: u64,
}

thread_local! {
    static STATE: RefCell<State> = const { RefCell::new(State {
        dice: 1, clock: 0, current: None, cores: Vec::new(), fault: Fault::None, calm: 2, lazy: 3, dead: None, mended: 0,
        given_up: 0,
    }) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(f)
}

impl State {
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 11) % sides
    }
}

impl Core {
    fn drain(&mut self) {
        for (word, value) in self.buffer.drain(..) {
            // SAFETY: words outlive the run in which they are stored to.
            unsafe { (*word).set(value) };
        }
    }

    fn drain_one(&mut self) {
        if let Some((word, value)) = self.buffer.pop_front() {
            // SAFETY: as above.
            unsafe { (*word).set(value) };
        }
    }

    fn finish_addition(&mut self) {
        self.buffer.extend(self.midway.take());
    }

    fn see(&self, word: &Cell<u64>) -> u64 {
        let own = self.buffer.iter().rev().find(|(w, _)| std::ptr::eq(*w, word));
        own.map_or_else(|| word.get(), |(_, value)| *value)
    }
}

/// A number below `sides`.
pub fn roll(sides: u64) -> u64 {
    with(|s| s.roll(sides))
}

/// A moment later than all before.
pub fn tick() -> u64 {
    with(|s| {
        s.clock += 1;
        s.clock
    })
}

/// When the process that dies died, and when all it held was given back.
pub fn death() -> Option<(u64, u64)> {
    with(|s| s.dead.map(|(_, when)| (when, s.mended)))
}

/// Whether that process is dead.
pub fn is_dead(process: usize) -> bool {
    with(|s| s.dead.is_some_and(|(p, _)| p == process))
}

/// Notes that all was given back.
pub fn note_mended() {
    let now = tick();
    with(|s| s.mended = now);
}

/// How often a wait was given up.
pub fn given_up() -> u64 {
    with(|s| s.given_up)
}

/// Before each access: others may run, or this core's signal handler.
pub fn step() {
    let (task, stop) = with(|s| {
        let Some(me) = s.current else { return (None, None) };
        if s.cores[me].handler.is_some() && s.roll(24) == 0 {
            return (s.cores[me].handler.take(), None);
        }
        let calm = s.calm;
        if s.roll(calm) == 0 { (None, s.cores[me].yielder) } else { (None, None) }
    });
    if let Some(task) = task {
        task();
    }
    if let Some(yielder) = stop {
        // SAFETY: the yielder of the fiber that runs.
        unsafe { (*yielder).suspend(()) };
    }
}

/// Lets others run.
pub fn pause() {
    let yielder = with(|s| s.current.and_then(|me| s.cores[me].yielder));
    if let Some(yielder) = yielder {
        // SAFETY: as above.
        unsafe { (*yielder).suspend(()) };
    }
}

pub fn drain() {
    with(|s| {
        if let Some(me) = s.current {
            s.cores[me].drain();
        }
    });
}

pub fn load(word: &Cell<u64>, order: Ordering) -> u64 {
    with(|s| {
        // Of all that is loaded so, only attention is ever raised without the loader's doing.
        let value = s.current.map_or_else(|| word.get(), |me| s.cores[me].see(word));
        if s.fault == Fault::Blind && order == Ordering::Acquire && value < 16 { 0 } else { value }
    })
}

pub fn store(word: &Cell<u64>, value: u64, order: Ordering) {
    with(|s| match s.current {
        Some(me) => {
            s.cores[me].buffer.push_back((word, value));
            if order == Ordering::SeqCst {
                s.cores[me].drain();
            }
        }
        None => word.set(value),
    });
}

pub fn add_unlocked(word: &Cell<u64>, more: u64) {
    let stop = with(|s| {
        let Some(me) = s.current else {
            word.set(word.get().wrapping_add(more));
            return None;
        };
        s.cores[me].midway = Some((word, s.cores[me].see(word).wrapping_add(more)));
        if s.roll(4) == 0 { s.cores[me].yielder } else { None }
    });
    if let Some(yielder) = stop {
        // SAFETY: the yielder of the fiber that runs.
        unsafe { (*yielder).suspend(()) };
    }
    with(|s| {
        if let Some(me) = s.current {
            s.cores[me].finish_addition();
        }
    });
}

/// `membarrier`: each core's stores are seen; an interrupt comes between instructions, never within one.
pub fn barrier() {
    step();
    with(|s| {
        if s.fault != Fault::NoBarrier {
            for core in &mut s.cores {
                core.finish_addition();
                core.drain();
            }
        }
    });
}

/// Waits; false after long. No store stays in a buffer as long.
pub fn wait(round: u32) -> bool {
    pause();
    with(|s| {
        if round >= 40 {
            s.cores.iter_mut().for_each(Core::drain);
        }
        let go_on = s.fault != Fault::Hasty && round < 600;
        s.given_up += u64::from(!go_on && s.fault != Fault::Hasty);
        go_on
    })
}

/// One thread of a run.
pub struct Thread {
    pub process: usize,
    pub task: Task,
    pub handler: Option<Task>,
}

/// Runs the threads in an order that `seed` decides; kills the processes with number 0 after so many turns.
pub fn run(seed: u64, fault: Fault, kill_after: Option<u64>, threads: Vec<Thread>) {
    with(|s| {
        s.dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (s.clock, s.fault, s.dead, s.mended, s.given_up) = (0, fault, None, 0, 0);
        s.cores.clear();
        s.calm = [2, 4, 8, 32][s.roll(4) as usize];
        s.lazy = [2, 8, 64][s.roll(3) as usize];
    });
    play(kill_after, threads);
}

/// Runs the threads with a turn for each step, so that the kill comes after that many of them.
pub fn run_step_by_step(kill_after: u64, threads: Vec<Thread>) {
    with(|s| {
        s.dice = 1;
        (s.clock, s.fault, s.dead, s.mended, s.given_up) = (0, Fault::None, None, 0, 0);
        s.cores.clear();
        (s.calm, s.lazy) = (1, 8);
    });
    play(Some(kill_after), threads);
}

fn play(kill_after: Option<u64>, threads: Vec<Thread>) {
    let mut fibers: Vec<_> = threads.into_iter().enumerate().map(|(i, t)| fiber(i, t)).collect();
    let mut turns = 0;
    let mut running: Vec<usize> = (0..fibers.len()).collect();
    loop {
        if kill_after.is_some_and(|after| after <= turns) && !is_dead(0) {
            kill();
        }
        running.retain(|i| with(|s| !s.cores[*i].over));
        if running.is_empty() {
            break;
        }
        let at = with(|s| {
            let core = s.roll(s.cores.len() as u64) as usize;
            let lazy = s.lazy;
            if s.roll(lazy) == 0 {
                s.cores[core].drain_one();
            }
            s.roll(running.len() as u64) as usize
        });
        let me = running[at];
        with(|s| s.current = Some(me));
        let over = matches!(fibers[me].resume(()), CoroutineResult::Return(()));
        with(|s| {
            s.current = None;
            if over {
                s.cores[me].drain();
                s.cores[me].over = true;
            }
        });
        turns += 1;
    }
    for mut fiber in fibers {
        if !fiber.done() {
            // SAFETY: a killed thread's stack holds numbers and references only.
            unsafe { fiber.force_reset() };
        }
        STACKS.with_borrow_mut(|stacks| stacks.push(fiber.into_stack()));
    }
}

fn fiber(number: usize, thread: Thread) -> Coroutine<(), (), (), DefaultStack> {
    let Thread { process, task, handler } = thread;
    with(|s| s.cores.push(Core { process, handler, ..Core::default() }));
    let stack = STACKS.with_borrow_mut(Vec::pop);
    let stack = stack.unwrap_or_else(|| DefaultStack::new(128 << 10).expect("a stack"));
    Coroutine::with_stack(stack, move |yielder, ()| {
        with(|s| s.cores[number].yielder = Some(yielder));
        task();
    })
}

/// What the killed had stored is stored; an instruction that was not over was not begun.
fn kill() {
    let now = tick();
    with(|s| {
        for core in s.cores.iter_mut().filter(|c| c.process == 0 && !c.over) {
            core.midway = None;
            core.drain();
            core.over = true;
        }
        s.dead = Some((0, now));
    });
}
