//! The cells of one column of a row group, until they are written.

use hashbrown::HashMap;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedColumnWriter;

use crate::columns::{Cell, Column, Kind};

/// Texts that are made into what the writer takes at once.
const BATCH: usize = 1024;

/// The cells so far: the values that are there, and for a column that may be empty a level for each cell, 1 for a
/// value and 0 for none.
pub(super) struct Collected {
    values: Values,
    levels: Option<Vec<i16>>,
}

/// Values by their type in the file.
enum Values {
    Small(Vec<i32>),
    Whole(Vec<i64>),
    Flag(Vec<bool>),
    Text(Texts),
}

/// Texts, each kept once.
#[derive(Default)]
struct Texts {
    places: Vec<u32>,
    known: HashMap<Box<str>, u32>,
    texts: Vec<ByteArray>,
    /// The place of the text that came last.
    last: u32,
}

impl Collected {
    pub(super) fn new(column: &Column) -> Collected {
        let values = match column.kind {
            Kind::Small => Values::Small(Vec::new()),
            Kind::Whole | Kind::Millis | Kind::Address => Values::Whole(Vec::new()),
            Kind::Flag => Values::Flag(Vec::new()),
            Kind::Text => Values::Text(Texts::default()),
        };
        Collected { values, levels: column.nullable.then(Vec::new) }
    }

    /// Adds a cell, which must be of the column's kind.
    #[inline]
    pub(super) fn push(&mut self, cell: Cell<'_>) {
        let there = match (&mut self.values, cell) {
            (Values::Small(values), Cell::Small(value)) => put(values, value.map(u32::cast_signed)),
            (
                Values::Whole(values),
                Cell::Whole(value) | Cell::Millis(value) | Cell::Address(value),
            ) => put(values, value.map(u64::cast_signed)),
            (Values::Flag(values), Cell::Flag(value)) => put(values, value),
            (Values::Text(texts), Cell::Text(value)) => {
                let value = value.filter(|text| self.levels.is_none() || !text.is_empty());
                value.map(|text| texts.put(text)).is_some()
            }
            _ => false,
        };
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(there));
        }
    }

    /// Writes all cells and forgets them.
    pub(super) fn write(
        &mut self,
        to: &mut SerializedColumnWriter<'_>,
    ) -> Result<(), ParquetError> {
        let levels = self.levels.as_deref();
        match &mut self.values {
            Values::Small(values) => write::<Int32Type>(values, levels, to)?,
            Values::Whole(values) => write::<Int64Type>(values, levels, to)?,
            Values::Flag(values) => write::<BoolType>(values, levels, to)?,
            Values::Text(texts) => texts.write(levels, to)?,
        }
        self.levels.iter_mut().for_each(Vec::clear);
        Ok(())
    }
}

#[inline]
fn put<T>(values: &mut Vec<T>, value: Option<T>) -> bool {
    let there = value.is_some();
    values.extend(value);
    there
}

fn write<T: DataType>(
    values: &mut Vec<T::T>,
    levels: Option<&[i16]>,
    to: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    to.typed::<T>().write_batch(values, levels, None)?;
    values.clear();
    Ok(())
}

impl Texts {
    /// Adds a text.
    fn put(&mut self, text: &str) {
        let last = self.texts.get(self.last as usize);
        if last.is_none_or(|last| last.data() != text.as_bytes()) {
            self.last = self.look_up(text);
        }
        self.places.push(self.last);
    }

    fn look_up(&mut self, text: &str) -> u32 {
        let next = self.texts.len() as u32;
        let place = *self.known.entry_ref(text).or_insert(next);
        if place == next {
            self.texts.push(ByteArray::from(text));
        }
        place
    }

    /// A slice of the rows at a time, as a text in the writer's form is larger than its place.
    fn write(
        &mut self,
        levels: Option<&[i16]>,
        to: &mut SerializedColumnWriter<'_>,
    ) -> Result<(), ParquetError> {
        let to = to.typed::<ByteArrayType>();
        let mut places = self.places.iter();
        let rows = levels.map_or(self.places.len(), <[i16]>::len);
        for start in (0..rows).step_by(BATCH) {
            let end = rows.min(start + BATCH);
            let levels = levels.and_then(|levels| levels.get(start..end));
            let there = levels.map_or(end - start, |l| l.iter().filter(|&&l| l > 0).count());
            let texts =
                places.by_ref().take(there).filter_map(|&place| self.texts.get(place as usize));
            let texts: Vec<ByteArray> = texts.cloned().collect();
            to.write_batch(&texts, levels, None)?;
        }
        *self = Texts::default();
        Ok(())
    }
}
