//! A process's place in a parallel job, from the variables that launchers set.
//!
//! The variables are those of the launchers' own manuals: Open MPI (`OMPI_COMM_WORLD_*`, PMIx),
//! MPICH's Hydra and its relatives (`PMI_*`), Slurm (`SLURM_*`). When several are set, the one
//! nearest to the program wins: an MPI launcher inside a Slurm allocation is the MPI launcher.

/// Who started the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Launcher {
    /// Open MPI's `mpirun`, or another PMIx launcher such as `prterun`.
    OpenMpi,
    /// MPICH's Hydra, or another with its variables (Intel MPI, MVAPICH).
    Hydra,
    /// Slurm's `srun`.
    Slurm,
}

impl Launcher {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Launcher::OpenMpi => "Open MPI",
            Launcher::Hydra => "Hydra",
            Launcher::Slurm => "Slurm",
        }
    }
}

/// A process's place in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Who started it.
    pub launcher: Launcher,
    /// Its rank, from 0.
    pub rank: u32,
    /// Ranks in all.
    pub size: Option<u32>,
    /// Ranks on this host.
    pub local_size: Option<u32>,
    /// What the launcher or the batch system calls the job.
    pub id: Option<String>,
    /// The host's name, where the launcher tells it.
    pub host: Option<String>,
}

/// Finds the job in an environment; `lookup` gives a variable's value. `None` outside of any job.
pub fn find(lookup: impl Fn(&str) -> Option<String>) -> Option<Job> {
    let first = |names: &[&str]| names.iter().find_map(|n| lookup(n).filter(|v| !v.is_empty()));
    let number = |names: &[&str]| first(names).and_then(|v| v.trim().parse::<u32>().ok());
    let slurm_id = || {
        let job = first(&["SLURM_JOB_ID", "SLURM_JOBID"])?;
        // Several steps of one job may run at the same time.
        let step = first(&["SLURM_STEP_ID", "SLURM_STEPID"]);
        Some(step.map_or(job.clone(), |step| format!("{job}.{step}")))
    };
    let host = first(&["PMIX_HOSTNAME", "SLURMD_NODENAME", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME"]);
    if let Some(rank) = number(&["OMPI_COMM_WORLD_RANK", "PMIX_RANK"]) {
        return Some(Job {
            launcher: Launcher::OpenMpi,
            rank,
            size: number(&["OMPI_COMM_WORLD_SIZE"]),
            local_size: number(&["OMPI_COMM_WORLD_LOCAL_SIZE"]),
            id: first(&["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"]).or_else(slurm_id),
            host,
        });
    }
    if let Some(rank) = number(&["PMI_RANK"]) {
        return Some(Job {
            launcher: Launcher::Hydra,
            rank,
            size: number(&["PMI_SIZE"]),
            local_size: number(&["MPI_LOCALNRANKS"]),
            // Not the batch job's: several mpirun may run in one.
            id: first(&["PMI_JOBID"]),
            host,
        });
    }
    Some(Job {
        launcher: Launcher::Slurm,
        rank: number(&["SLURM_PROCID"])?,
        size: number(&["SLURM_NTASKS", "SLURM_NPROCS"]),
        local_size: None,
        id: slurm_id(),
        host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(env: &[(&str, &str)]) -> Option<Job> {
        find(|name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn open_mpi() {
        let job = find_in(&[
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("PMIX_RANK", "3"),
            ("PMIX_NAMESPACE", "prterun-node7-812@1"),
            ("PMIX_HOSTNAME", "node7"),
            ("SLURM_PROCID", "0"),
        ])
        .unwrap();
        assert_eq!((job.launcher, job.rank, job.size), (Launcher::OpenMpi, 3, Some(4)));
        assert_eq!(job.id.as_deref(), Some("prterun-node7-812@1"));
        assert_eq!(job.host.as_deref(), Some("node7"));
    }

    #[test]
    fn plain_pmix_has_no_size() {
        let job = find_in(&[("PMIX_RANK", "0"), ("SLURM_JOB_ID", "77")]).unwrap();
        assert_eq!((job.rank, job.size, job.id.as_deref()), (0, None, Some("77")));
    }

    #[test]
    fn hydra_and_slurm() {
        let job = find_in(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]).unwrap();
        assert_eq!((job.launcher, job.rank, job.size, job.id), (Launcher::Hydra, 1, Some(2), None));
        let job = find_in(&[
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_JOB_ID", "9"),
            ("SLURM_STEP_ID", "2"),
            ("SLURMD_NODENAME", "n1"),
        ])
        .unwrap();
        assert_eq!((job.launcher, job.rank, job.size), (Launcher::Slurm, 5, Some(8)));
        assert_eq!((job.id.as_deref(), job.host.as_deref()), (Some("9.2"), Some("n1")));
    }

    #[test]
    fn the_batch_job_is_not_the_job_of_an_mpirun_in_it() {
        let job = find_in(&[
            ("PMI_RANK", "1"),
            ("MPI_LOCALNRANKS", "2"),
            ("SLURM_JOB_ID", "9"),
            ("SLURM_PROCID", "0"),
        ])
        .unwrap();
        assert_eq!((job.launcher, job.id, job.local_size), (Launcher::Hydra, None, Some(2)));
    }

    #[test]
    fn no_job_and_nonsense() {
        assert_eq!(find_in(&[]), None);
        assert_eq!(find_in(&[("SLURM_JOB_ID", "9")]), None);
        assert_eq!(find_in(&[("PMI_RANK", "first")]), None);
    }
}
