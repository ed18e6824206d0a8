//! What `limit auto` takes, or why it takes nothing, in words.

use heaptape_proc::{Allotment, Allotments, Batch};

use super::Figures;
use crate::document::Part;
use crate::size::Size;

/// What was taken and from where: `4.0 GiB (SLURM_MEM_PER_NODE)`.
pub fn taken(allotment: &Allotment) -> String {
    sourced(allotment.bytes, &allotment.source)
}

fn sourced(bytes: u64, source: &str) -> String {
    format!("{} ({source})", Size(bytes))
}

/// Why there is nothing to take, without a capital and an end.
pub fn nothing(found: &Allotments) -> String {
    let batch = match found.batch {
        None => {
            "no batch system says in the environment how much memory this job may have".to_owned()
        }
        Some(batch) => format!(
            "{} does not say in the environment how much memory this job may have on this node",
            batch.name()
        ),
    };
    format!("{batch}, and no cgroup that heaptape runs in has a limit")
}

/// What can be done about it, as a sentence.
pub fn advice(batch: Option<Batch>) -> String {
    match batch {
        None => "Give a size.".to_owned(),
        Some(batch) => format!("Give a size; {} shows what the job was given.", batch.shows()),
    }
}

/// In the report: where the limit comes from.
pub(super) fn part(figures: &Figures<'_>) -> Option<Part> {
    let source = figures.settings.source.as_ref()?;
    let sourced = sourced(figures.job.limit?, source);
    Some(Part::Text(format!("The limit is what this job was given on this node: {sourced}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_what_is_not() {
        let found = Allotment { bytes: 4 << 30, source: "SLURM_MEM_PER_NODE".into() };
        assert_eq!(taken(&found), "4.0 GiB (SLURM_MEM_PER_NODE)");
        let none = Allotments { all: Vec::new(), batch: Some(Batch::Pbs) };
        assert_eq!(
            format!("{}. {}", nothing(&none), advice(none.batch)),
            "PBS does not say in the environment how much memory this job may have on this node, and no cgroup that \
             heaptape runs in has a limit. Give a size; qstat -f $PBS_JOBID shows what the job was given."
        );
    }
}
