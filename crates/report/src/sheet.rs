//! A table on its way into a file, in the format that was chosen.

use std::io::{self, Write};

use crate::columns::Record;
use crate::csv::Csv;
#[cfg(feature = "parquet")]
use crate::parquet::Parquet;

/// Writes the rows of one table.
pub enum Sheet<W: Write + Send> {
    /// As CSV.
    Csv(Csv<W>),
    /// As Parquet.
    #[cfg(feature = "parquet")]
    Parquet(Parquet<W>),
}

impl<W: Write + Send> Sheet<W> {
    /// Writes a row; all rows of a sheet are of one table.
    pub fn row(&mut self, row: &impl Record) -> io::Result<()> {
        match self {
            Sheet::Csv(csv) => csv.row(row),
            #[cfg(feature = "parquet")]
            Sheet::Parquet(parquet) => parquet.row(row),
        }
    }

    /// Writes what is still missing. Without it a file is not whole.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Sheet::Csv(csv) => csv.finish().map(drop),
            #[cfg(feature = "parquet")]
            Sheet::Parquet(parquet) => parquet.finish(),
        }
    }
}
