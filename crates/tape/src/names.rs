//! Names of places in files, as somebody has found them for a tape: functions with what was inlined into them,
//! files and lines.
//!
//! They come from the command that has looked them up and are on the tape for readers that lack the files. Nothing
//! here opens one.

use crate::column::{Column, Packer};
use crate::field::{FieldReader, FieldWriter, Truncated};
use crate::frame::{Content, RawFrame};
use crate::index::Located;
use crate::{Error, Tape};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// A frame becomes about this long, in bytes before it is packed.
const LENGTH: usize = 8 << 20;

/// And never longer than this: the names at one place have their limits too.
const LONGEST: usize = 64 << 20;

/// All frames of a tape together have no more than this, in bytes before they are packed.
const MOST: usize = 512 << 20;

/// The names in one file that programs had mapped.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ModuleNames {
    /// Its path.
    pub path: String,
    /// Its GNU build id; empty for none.
    pub build_id: Vec<u8>,
    /// By offset, rising.
    pub places: Vec<NamedPlace>,
}

/// What is at a return address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPlace {
    /// The return address less the load bias.
    pub offset: u64,
    /// The functions that the call before it lies in, the innermost first.
    pub frames: Vec<NamedFrame>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFrame {
    /// Its name; empty where only the line is known.
    pub function: Arc<str>,
    /// The source file.
    pub file: Option<Arc<str>>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// Whether it was inlined into the function of the next frame.
    pub is_inlined: bool,
}

/// Names on their way to the file.
#[derive(Debug, Default)]
pub(crate) struct RawNames {
    texts: FieldWriter,
    numbers: HashMap<Arc<str>, u64>,
    modules: FieldWriter,
}

impl RawNames {
    /// The frames that hold these, or as many of them as a tape may have.
    pub(crate) fn frames(all: &[ModuleNames]) -> Vec<RawFrame> {
        let mut frames = Vec::new();
        let mut raw = RawNames::default();
        let mut room = MOST;
        for module in all {
            let mut left = module.places.as_slice();
            while !left.is_empty() {
                left = raw.module(module, left);
                if raw.is_full() {
                    let full = std::mem::take(&mut raw);
                    let Some(rest) = room.checked_sub(full.len()) else { return frames };
                    room = rest;
                    frames.push(full.frame());
                }
            }
        }
        if !raw.modules.bytes.is_empty() && raw.len() <= room {
            frames.push(raw.frame());
        }
        frames
    }

    fn frame(self) -> RawFrame {
        RawFrame { process: 0, content: Content::Names(self) }
    }

    fn is_full(&self) -> bool {
        self.len() >= LENGTH
    }

    /// The bytes that it takes at the most.
    fn len(&self) -> usize {
        const NUMBER: usize = 10;
        self.texts.bytes.len() + self.modules.bytes.len() + NUMBER
    }

    /// Takes in as many places of a module as fit, and at least one; gives the others.
    fn module<'a>(&mut self, module: &ModuleNames, places: &'a [NamedPlace]) -> &'a [NamedPlace] {
        let mut fields = FieldWriter::new();
        let (mut taken, mut last) = (0, 0u64);
        for place in places {
            fields.number(place.offset.wrapping_sub(last)).number(place.frames.len() as u64);
            for frame in &place.frames {
                self.frame_of(frame, &mut fields);
            }
            (taken, last) = (taken + 1, place.offset);
            if self.len() + fields.bytes.len() >= LENGTH {
                break;
            }
        }
        self.modules.text(module.path.as_bytes()).text(&module.build_id).number(taken as u64);
        self.modules.raw(&fields.bytes);
        places.get(taken..).unwrap_or_default()
    }

    fn frame_of(&mut self, frame: &NamedFrame, fields: &mut FieldWriter) {
        let file = frame.file.as_ref().map(|file| self.number(file));
        let line = u64::from(frame.line.unwrap_or(0)) * 2 + u64::from(frame.is_inlined);
        fields.number(self.number(&frame.function)).option(file).number(line);
    }

    fn number(&mut self, text: &Arc<str>) -> u64 {
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        let number = self.numbers.len() as u64;
        self.numbers.insert(Arc::clone(text), number);
        self.texts.text(text.as_bytes());
        number
    }

    pub(crate) fn pack(&self, packer: &mut Packer) -> io::Result<()> {
        let mut all = FieldWriter::new();
        all.number(self.numbers.len() as u64).raw(&self.texts.bytes).raw(&self.modules.bytes);
        packer.bytes(Column::Names, &all.bytes)
    }
}

impl Tape {
    /// The names that are on the tape; a module may come more than once.
    pub fn names(&self) -> Result<Vec<ModuleNames>, Error> {
        let mut all = Vec::new();
        let mut room = MOST as u64;
        for located in self.located_names() {
            let from = self.unpacker(located);
            let length = from.length(Column::Names);
            let left = room.checked_sub(length).filter(|_| length <= LONGEST as u64);
            let Some(left) = left else {
                let what = "a list of names is longer than any that is written";
                return Err(Error::Damaged { offset: located.frame, what });
            };
            room = left;
            let bytes = from.bytes(Column::Names).map_err(|why| why.at(located.frame))?;
            let what = "a list of names is too short";
            read(&bytes, &mut all).map_err(|_| Error::Damaged { offset: located.frame, what })?;
        }
        Ok(all)
    }
}

/// Frames of names have no header of their own.
pub(crate) type LocatedNames = Located<()>;

fn read(bytes: &[u8], all: &mut Vec<ModuleNames>) -> Result<(), Truncated> {
    let mut fields = FieldReader::new(bytes);
    let mut texts: Vec<Arc<str>> = Vec::new();
    for _ in 0..fields.number()? {
        texts.push(fields.string()?.into());
    }
    while !fields.is_empty() {
        let (path, build_id) = (fields.string()?, fields.text()?.to_vec());
        let (mut places, mut offset) = (Vec::new(), 0u64);
        for _ in 0..fields.number()? {
            offset = offset.wrapping_add(fields.number()?);
            let mut frames = Vec::new();
            for _ in 0..fields.number()? {
                frames.push(read_frame(&mut fields, &texts)?);
            }
            places.push(NamedPlace { offset, frames });
        }
        all.push(ModuleNames { path, build_id, places });
    }
    Ok(())
}

fn read_frame(fields: &mut FieldReader<'_>, texts: &[Arc<str>]) -> Result<NamedFrame, Truncated> {
    let text = |number: u64| {
        let number = usize::try_from(number).map_err(|_| Truncated)?;
        texts.get(number).cloned().ok_or(Truncated)
    };
    let function = text(fields.number()?)?;
    let file = fields.option()?.map(text).transpose()?;
    let line = fields.number()?;
    let is_inlined = line % 2 == 1;
    let line = u32::try_from(line / 2).map_err(|_| Truncated)?;
    Ok(NamedFrame { function, file, line: (line > 0).then_some(line), is_inlined })
}
