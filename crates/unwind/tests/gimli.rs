//! Every row of the tables of real libraries, against what gimli makes of it.

use std::fs;
use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, LittleEndian, Operation, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};
use heaptape_unwind::{Bp, Cfa, Rule, rule};
use object::{Object, ObjectSection, ObjectSegment};

// Instructions that compilers seldom or never write, in the tables of this very program. Each row has code of its own.
std::arch::global_asm!(include_str!("rare.s"), options(att_syntax));

unsafe extern "C" {
    /// Is never called.
    fn rare();
}

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// A file, laid out in memory as the loader would.
struct Image {
    memory: Vec<u8>,
    low: u64,
}

impl Image {
    fn new(file: &object::File<'_>) -> Image {
        let low = file.segments().map(|s| s.address()).min().unwrap_or(0);
        let high = file.segments().map(|s| s.address() + s.size()).max().unwrap_or(0);
        let mut memory = vec![0; (high - low) as usize];
        for segment in file.segments() {
            let (at, data) = ((segment.address() - low) as usize, segment.data().unwrap());
            memory[at..at + data.len()].copy_from_slice(data);
        }
        Image { memory, low }
    }

    fn place(&self, address: u64) -> usize {
        self.memory.as_ptr() as usize + (address - self.low) as usize
    }

    fn rule(&self, header: u64, pc: u64) -> Rule {
        let range = self.memory.as_ptr_range();
        // SAFETY: the memory is ours and readable.
        unsafe {
            rule(self.place(header), range.start as usize..range.end as usize, self.place(pc))
        }
    }
}

/// The rule that gimli's row means; `None` where it is of a kind that is not followed.
fn expected(
    row: &UnwindTableRow<usize>,
    expression: impl Fn(&UnwindExpression<usize>) -> Vec<Operation<Bytes<'static>>>,
) -> Option<Rule> {
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match *register {
            X86_64::RSP => Cfa::Sp(*offset as i32),
            X86_64::RBP => Cfa::Bp(*offset as i32),
            _ => return unless_end(row),
        },
        CfaRule::Expression(e) => match expression(e).as_slice() {
            [Operation::RegisterOffset { register: X86_64::RBP, offset, .. }] => {
                Cfa::Bp(*offset as i32)
            }
            [Operation::RegisterOffset { register: X86_64::RSP, offset, .. }] => {
                Cfa::Sp(*offset as i32)
            }
            [
                Operation::RegisterOffset { register: X86_64::RBP, offset, .. },
                Operation::Deref { .. },
            ] => Cfa::DerefBp(*offset as i32, 0),
            [
                Operation::RegisterOffset { register: X86_64::RSP, offset, .. },
                Operation::Deref { .. },
            ] => Cfa::DerefSp(*offset as i32, 0),
            [
                Operation::RegisterOffset { register, offset, .. },
                Operation::Deref { .. },
                Operation::PlusConstant { value },
            ] if *value < 256 => match *register {
                X86_64::RSP => Cfa::DerefSp(*offset as i32, *value as u8),
                X86_64::RBP => Cfa::DerefBp(*offset as i32, *value as u8),
                _ => return unless_end(row),
            },
            [
                Operation::RegisterOffset { register: X86_64::RSP, offset: 8, .. },
                Operation::RegisterOffset { register: X86_64::RA, offset: 0, .. },
                Operation::UnsignedConstant { value: 15 },
                Operation::And,
                Operation::UnsignedConstant { value },
                Operation::Ge,
                ..,
            ] => Cfa::Linkage(*value as u8),
            _ => return unless_end(row),
        },
    };
    match row.register(X86_64::RA) {
        RegisterRule::Undefined => return Some(Rule::End),
        RegisterRule::Offset(-8) => {}
        _ => return None,
    }
    let bp = match row.register(X86_64::RBP) {
        RegisterRule::SameValue | RegisterRule::Undefined => Bp::Same,
        RegisterRule::Offset(offset) => Bp::At(offset as i32),
        RegisterRule::Expression(e) => match expression(&e).as_slice() {
            [Operation::RegisterOffset { register: X86_64::RBP, offset, .. }] => {
                Bp::AtBp(*offset as i32)
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(Rule::Frame { cfa, bp })
}

fn unless_end(row: &UnwindTableRow<usize>) -> Option<Rule> {
    (row.register(X86_64::RA) == RegisterRule::Undefined).then_some(Rule::End)
}

/// Rows that are the same, and rows that nobody follows.
fn compare(path: &Path) -> (u64, u64) {
    let data: &'static [u8] = fs::read(path).unwrap().leak();
    let file = object::File::parse(data).unwrap();
    let image = Image::new(&file);
    let section = |name: &str| file.section_by_name(name);
    let (Some(frames), Some(header)) = (section(".eh_frame"), section(".eh_frame_hdr")) else {
        panic!("{} has no tables", path.display());
    };
    let eh_frame = EhFrame::new(frames.data().unwrap(), LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(frames.address());
    let (mut same, mut unknown) = (0, 0);
    let mut context = UnwindContext::new();
    let mut entries = eh_frame.entries(&bases);
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
        if fde.len() == 0 {
            continue;
        }
        let expression = |e: &UnwindExpression<usize>| {
            let mut operations = e.get(&eh_frame).unwrap().operations(fde.cie().encoding());
            let mut all = Vec::new();
            while let Some(operation) = operations.next().unwrap() {
                all.push(operation);
            }
            all
        };
        let mut rows = fde.rows(&eh_frame, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let wanted = match fde.is_signal_trampoline() {
                true => Some(Rule::Signal),
                false => expected(row, expression),
            };
            let end = row.end_address().min(fde.initial_address() + fde.len());
            for pc in [row.start_address(), end - 1] {
                if pc < row.start_address() || !fde.contains(pc) {
                    continue;
                }
                let found = image.rule(header.address(), pc);
                assert_eq!(
                    found.pack().map_or(found, Rule::unpack),
                    wanted.unwrap_or(Rule::Unknown),
                    "{} at {pc:#x}",
                    path.display()
                );
                same += 1;
                unknown += u64::from(wanted.is_none());
            }
        }
    }
    (same, unknown)
}

#[test]
fn every_row_of_real_libraries_is_as_gimli_reads_it() {
    std::hint::black_box(rare as *const ());
    let mut files = vec![std::env::current_exe().unwrap()];
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    files.extend(mapped.filter(|path| path.contains(".so")).map(Into::into));
    let others = [
        "/usr/bin/python3",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus",
        "/usr/lib/x86_64-linux-gnu/libavcodec.so.59",
        "/usr/bin/node",
    ];
    files.extend(others.iter().map(Into::into).filter(|path: &std::path::PathBuf| path.exists()));
    files.sort();
    files.dedup();
    for path in files {
        let (rows, unknown) = compare(&path);
        assert!(rows > 10 && unknown * 100 <= rows, "{}", path.display());
    }
}
