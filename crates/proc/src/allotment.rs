//! The memory that a job may have on this node, by whoever has given it: the batch system, in the job's environment, or who
//! has made the control group that this process runs in.
//!
//! Sources are the batch systems' manuals. Slurm names megabytes a node, a processor or a GPU (sbatch(1), "output
//! environment variables"). PBS and Torque tell a job nothing of its memory by themselves; sites let a hook set
//! `PBS_RESC_MEM`, or `TORQUE_RESC_MEM`, to the bytes on each node. Univa's and Altair's Grid Engine name what was granted
//! (`SGE_HGR_m_mem_free`); LSF tells what a job has reserved, which is no limit. All of them may limit by a control group.

use crate::cgroup::Ceiling;
use crate::{Cgroup, field, read};

/// Memory that was given to the job on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allotment {
    /// In bytes.
    pub bytes: u64,
    /// Where that stands: variables, or a group's directory.
    pub source: String,
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allotments {
    /// What was given, in the order in which it was looked for.
    pub all: Vec<Allotment>,
    /// The batch system whose job this is.
    pub batch: Option<Batch>,
}

/// A batch system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Slurm.
    Slurm,
    /// OpenPBS, PBS Professional or Torque.
    Pbs,
    /// IBM's LSF.
    Lsf,
    /// Grid Engine, of any maker.
    GridEngine,
}

impl Batch {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Batch::Slurm => "Slurm",
            Batch::Pbs => "PBS",
            Batch::Lsf => "LSF",
            Batch::GridEngine => "Grid Engine",
        }
    }

    /// What shows a user what his job was given.
    pub const fn shows(self) -> &'static str {
        match self {
            Batch::Slurm => "scontrol show job $SLURM_JOB_ID",
            Batch::Pbs => "qstat -f $PBS_JOBID",
            Batch::Lsf => "bjobs -l $LSB_JOBID",
            Batch::GridEngine => "qstat -j $JOB_ID",
        }
    }
}

impl Allotments {
    /// For this process; `lookup` gives a variable's value.
    pub fn here(lookup: impl Fn(&str) -> Option<String>) -> Allotments {
        let memory = read::memory().unwrap_or_default();
        let node = field::find(&memory, "MemTotal").and_then(field::bytes);
        find(lookup, Cgroup::read().ceiling.as_ref(), node)
    }

    /// The one that counts: the smallest.
    pub fn least(&self) -> Option<&Allotment> {
        self.all.iter().min_by_key(|allotment| allotment.bytes)
    }
}

/// Finds all that was given. `node` is the memory of the whole node, in bytes.
pub fn find(
    lookup: impl Fn(&str) -> Option<String>,
    group: Option<&Ceiling>,
    node: Option<u64>,
) -> Allotments {
    let variables = Variables { lookup: &lookup, node };
    let mut all = variables.slurm();
    all.extend(variables.pbs());
    all.extend(variables.grid_engine());
    all.extend(group.map(|ceiling| Allotment {
        bytes: ceiling.bytes,
        source: format!("cgroup {}", ceiling.directory.display()),
    }));
    all.retain(|allotment| allotment.bytes > 0);
    Allotments { all, batch: variables.batch() }
}

struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    node: Option<u64>,
}

impl Variables<'_> {
    fn value(&self, name: &str) -> Option<String> {
        let value = (self.lookup)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    fn batch(&self) -> Option<Batch> {
        let jobs = [
            ("SLURM_JOB_ID", Batch::Slurm),
            ("PBS_JOBID", Batch::Pbs),
            ("LSB_JOBID", Batch::Lsf),
            ("SGE_TASK_ID", Batch::GridEngine),
        ];
        jobs.into_iter().find(|(name, _)| self.value(name).is_some()).map(|(_, batch)| batch)
    }

    fn slurm(&self) -> Vec<Allotment> {
        let processors = || {
            let on_node = self.value("SLURM_CPUS_ON_NODE").and_then(|value| value.parse().ok());
            let on_node = on_node.map(|count| (count, "SLURM_CPUS_ON_NODE"));
            on_node.or_else(|| Some((self.of_this_node()?, "SLURM_JOB_CPUS_PER_NODE")))
        };
        let devices = || {
            let count = self.value("SLURM_GPUS_ON_NODE")?.parse().ok()?;
            Some((count, "SLURM_GPUS_ON_NODE"))
        };
        let node = self.megabytes("SLURM_MEM_PER_NODE", || Some((1, "")));
        let processor = self.megabytes("SLURM_MEM_PER_CPU", processors);
        let device = self.megabytes("SLURM_MEM_PER_GPU", devices);
        [node, processor, device].into_iter().flatten().collect()
    }

    /// Megabytes for each of so many: 0 stands for all that the node has.
    fn megabytes<'n>(
        &self,
        name: &str,
        count: impl FnOnce() -> Option<(u64, &'n str)>,
    ) -> Option<Allotment> {
        let bytes = amount(&self.value(name)?, 1 << 20)?;
        if bytes == 0 {
            let source = format!("{name}=0, all memory of this node");
            return Some(Allotment { bytes: self.node?, source });
        }
        let (count, counter) = count()?;
        let times = if counter.is_empty() { String::new() } else { format!(" × {counter}") };
        Some(Allotment { bytes: bytes.checked_mul(count)?, source: format!("{name}{times}") })
    }

    /// The processors of this node in a list such as `72(x2),36`; of the smallest where it is not known which this is.
    fn of_this_node(&self) -> Option<u64> {
        let list = self.value("SLURM_JOB_CPUS_PER_NODE")?;
        let mut nodes = Vec::new();
        for part in list.split(',') {
            let (count, times) = part.split_once("(x").unwrap_or((part, "1)"));
            let times: usize = times.strip_suffix(')')?.parse().ok()?;
            nodes.push((count.parse::<u64>().ok()?, times));
        }
        let number = self.value("SLURM_NODEID").and_then(|value| value.parse::<usize>().ok());
        let mut first = 0usize;
        let own = nodes.iter().find(|(_, times)| {
            first = first.saturating_add(*times);
            number.is_some_and(|number| number < first)
        });
        own.or_else(|| nodes.iter().min()).map(|(count, _)| *count)
    }

    fn pbs(&self) -> Option<Allotment> {
        ["PBS_RESC_MEM", "TORQUE_RESC_MEM"].into_iter().find_map(|name| {
            // `4gb` and `4GB` are the same there.
            let bytes = amount(&self.value(name)?.to_uppercase(), 1)?;
            Some(Allotment { bytes, source: name.to_owned() })
        })
    }

    fn grid_engine(&self) -> Option<Allotment> {
        let name = "SGE_HGR_m_mem_free";
        Some(Allotment { bytes: amount(&self.value(name)?, 1)?, source: name.to_owned() })
    }
}

/// Reads `4096`, `16G`, `9.200G`, `4GB`; `unit` is what a number alone counts. A small letter stands for thousands, as
/// Grid Engine has it.
fn amount(text: &str, unit: u64) -> Option<u64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, letters) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let power = |letter: char| Some("KMGT".find(letter.to_ascii_uppercase())? as i32 + 1);
    let unit = match (letters.trim_end_matches(['b', 'B']), letters) {
        ("", "") => unit as f64,
        ("", _) => 1.0,
        (letter, _) if letter.len() == 1 => {
            let letter = letter.chars().next()?;
            let base: f64 = if letter.is_ascii_lowercase() { 1000.0 } else { 1024.0 };
            base.powi(power(letter)?)
        }
        _ => return None,
    };
    let bytes = number * unit;
    (bytes < 9e18).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Option<u64> = Some(512 << 30);

    fn found(environment: &[(&str, &str)]) -> Allotments {
        let lookup = |name: &str| {
            let found = environment.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        find(lookup, None, NODE)
    }

    fn least(environment: &[(&str, &str)]) -> Option<(u64, String)> {
        let found = found(environment);
        found.least().map(|allotment| (allotment.bytes, allotment.source.clone()))
    }

    #[test]
    fn slurm_names_megabytes() {
        let node = least(&[("SLURM_JOB_ID", "7"), ("SLURM_MEM_PER_NODE", "4096")]);
        assert_eq!(node, Some((4 << 30, "SLURM_MEM_PER_NODE".into())));
        let all = least(&[("SLURM_MEM_PER_NODE", "0")]);
        assert_eq!(all, Some((512 << 30, "SLURM_MEM_PER_NODE=0, all memory of this node".into())));
        let processors = [("SLURM_MEM_PER_CPU", "2000"), ("SLURM_CPUS_ON_NODE", "8")];
        let source = "SLURM_MEM_PER_CPU × SLURM_CPUS_ON_NODE".to_owned();
        assert_eq!(least(&processors), Some((16_000 << 20, source)));
        let devices = [("SLURM_MEM_PER_GPU", "8G"), ("SLURM_GPUS_ON_NODE", "2")];
        assert_eq!(least(&devices).map(|(bytes, _)| bytes), Some(16 << 30));
        // Without the count of them it is not known.
        assert_eq!(least(&devices[..1]), None);
    }

    #[test]
    fn a_list_of_nodes_is_read_at_this_nodes_place() {
        let of = |list: &str, node: &str| {
            let variables = [
                ("SLURM_MEM_PER_CPU", "1024"),
                ("SLURM_JOB_CPUS_PER_NODE", list),
                ("SLURM_NODEID", node),
            ];
            least(&variables).map(|(bytes, _)| bytes >> 30)
        };
        let list = "72(x2),36";
        assert_eq!(["0", "1", "2", ""].map(|node| of(list, node)), [72, 72, 36, 36].map(Some));
        assert_eq!([of("4", "0"), of("4(x2", "0"), of("a", "0")], [Some(4), None, None]);
    }

    #[test]
    fn other_batch_systems() {
        let bytes = |name: &str, value: &str| least(&[(name, value)]).map(|(bytes, _)| bytes);
        assert_eq!(bytes("PBS_RESC_MEM", "419430400"), Some(400 << 20));
        assert_eq!(bytes("PBS_RESC_MEM", "16gb"), Some(16 << 30));
        assert_eq!(bytes("TORQUE_RESC_MEM", "512mb"), Some(512 << 20));
        assert_eq!(bytes("SGE_HGR_m_mem_free", "9.500G"), Some(9728 << 20));
        assert_eq!(bytes("SGE_HGR_m_mem_free", "2g"), Some(2_000_000_000));
        for nonsense in ["", "none", "-1", "4XB", "1e9", "..", "99999999999999999999T"] {
            assert_eq!(bytes("PBS_RESC_MEM", nonsense), None, "{nonsense}");
        }
        let batches = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID"];
        let names = batches.map(|name| found(&[(name, "1")]).batch.map(Batch::name));
        assert_eq!(names, ["Slurm", "PBS", "LSF", "Grid Engine"].map(Some));
        assert_eq!(found(&[]), Allotments::default());
    }

    #[test]
    fn the_smallest_counts() {
        let group = Ceiling { bytes: 2 << 30, directory: "/sys/fs/cgroup/job".into() };
        let with = |megabytes: &'static str| {
            let lookup =
                move |name: &str| (name == "SLURM_MEM_PER_NODE").then(|| megabytes.to_owned());
            find(lookup, Some(&group), NODE).least().map(|least| least.source.clone())
        };
        assert_eq!(with("4096").as_deref(), Some("cgroup /sys/fs/cgroup/job"));
        assert_eq!(with("1024").as_deref(), Some("SLURM_MEM_PER_NODE"));
    }
}
