//! Tapes that say what no program can have done: every figure is still made, and nothing panics. (The tests are
//! built with checks for overflow.)

use heaptape_analyze::account::Account;
use heaptape_analyze::callers::Callers;
use heaptape_analyze::choice::LastPart;
use heaptape_analyze::curves::{self, Source, Wish};
use heaptape_analyze::leaks::{Leaks, Plan};
use heaptape_analyze::timeline::Axis;
use heaptape_analyze::{ProcessSummary, findings, sites};
use heaptape_tape::{
    Call, Event, FrameWriter, Header, Origin, ProcessEnd, ProcessStart, Sample, Tape, Writer,
};

const NUMBERS: [u64; 9] =
    [0, 1, 16, 1 << 20, 1 << 40, 1 << 47, i64::MAX as u64, u64::MAX - 1, u64::MAX];

/// A generator of numbers, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x5851_f42d);
        (self.0 >> 33) % n
    }

    fn number(&mut self) -> u64 {
        NUMBERS[self.below(NUMBERS.len() as u64) as usize]
    }
}

fn event(random: &mut Random) -> Event {
    let call = Call::ALL[random.below(Call::ALL.len() as u64) as usize];
    let allocates = !call.is_release();
    Event {
        call,
        thread: random.number() as u32,
        time: random.number(),
        caller: random.number(),
        address: random.below(6) * 16,
        size: if allocates { random.number() } else { 0 },
        slack: if allocates { random.number() } else { 0 },
        align: 0,
        old: if call.is_reallocation() { random.below(6) * 16 } else { 0 },
    }
}

fn tape(random: &mut Random) -> Tape {
    let mut writer =
        Writer::new(FrameWriter::new(Vec::new()).unwrap(), &Header::default()).unwrap();
    let mut processes = Vec::new();
    for pid in 0..3 {
        let (parent, rank, command) = (None, None, Vec::new());
        let (origin, time) = (Origin::Exec, random.number());
        let start = ProcessStart { pid, parent, origin, time, rank, command };
        processes.push(writer.start_process(&start).unwrap());
    }
    for _ in 0..random.below(300) {
        let process = processes[random.below(3) as usize];
        match random.below(20) {
            0 => {
                let (thread, time) = (random.number() as u32, random.number());
                writer.release(process, thread, time, random.below(6) * 16).unwrap();
            }
            1 => {
                let mut known = || Some(random.number());
                let (system, resident, pss) = (known(), known(), known());
                let sample =
                    Sample { system, resident, pss, time: random.number(), ..Sample::default() };
                writer.sample(process, &sample).unwrap();
            }
            _ => {
                writer.event(process, &event(random)).unwrap();
            }
        }
    }
    for process in processes {
        if random.below(3) > 0 {
            let end = ProcessEnd { time: random.number(), ..ProcessEnd::default() };
            writer.end_process(process, &end).unwrap();
        }
    }
    Tape::from_bytes(writer.finish(None).unwrap().into_inner()).unwrap()
}

fn leaks_of(tape: &Tape, chosen: &[&ProcessSummary]) {
    let (mut suppressed, mut progress) = (|_: &_, _| false, |_| {});
    let (suppressed, progress) = (&mut suppressed, &mut progress);
    let mut plan = Plan { ignored: Some(LastPart::Permille(100)), suppressed, progress };
    let leaks = Leaks::of(tape, chosen, &mut Callers::new(tape), &mut plan).unwrap();
    leaks.callers.iter().for_each(|kept| {
        kept.growth();
    });
}

#[test]
fn figures_are_made_of_tapes_that_say_what_cannot_be() {
    for seed in 0..400 {
        let tape = tape(&mut Random(seed));
        let all: Vec<&ProcessSummary> = tape.summary().processes.iter().collect();
        for chosen in [&all[..], &all[..1], &all[2..]] {
            let account =
                Account::of(&tape, chosen, &mut Callers::new(&tape), &mut |_| {}).unwrap();
            findings::of(&account);
            sites::by_module(&account.sites);
            leaks_of(&tape, chosen);
            for axis in [Axis::Index, Axis::Time] {
                let source = Source { tape: &tape, processes: chosen.to_vec() };
                let wish = Wish { axis, window: None, columns: 100 };
                curves::draw(&[source], &wish, &mut |_| {}).unwrap();
            }
        }
    }
}
