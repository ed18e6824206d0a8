//! Shared memory of a job that has a name in `/dev/shm`: what its processes had mapped, and its removal
//! once all of them were killed and nobody else has it.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heaptape_proc::{Error, Mapping, read};

/// A file, by device and inode.
pub(crate) type Identity = ((u32, u32), u64);

/// What was seen.
pub(crate) struct Segments {
    /// Our own file.
    own: Identity,
    found: HashMap<Identity, PathBuf>,
}

impl Segments {
    /// `own`: the session's file, which is not the job's.
    pub(crate) fn new(own: Identity) -> Segments {
        Segments { own, found: HashMap::new() }
    }

    /// Notes what a process has mapped.
    pub(crate) fn note(&mut self, pid: u32) {
        for mapping in read::maps(pid).unwrap_or_default() {
            let Some(path) = mapping.path() else { continue };
            let identity = identity(&mapping);
            if mapping.perms.shared
                && !mapping.deleted
                && path.starts_with("/dev/shm")
                && identity != self.own
            {
                self.found.insert(identity, path.to_owned());
            }
        }
    }

    /// Removes the files, all of whose users are gone. What another process has mapped, or may have,
    /// stays, and so does what is not this user's.
    pub(crate) fn remove(self) {
        let user = rustix::process::geteuid().as_raw();
        let mut left: HashMap<_, _> = self.found;
        left.retain(|&identity, path| {
            fs::symlink_metadata(path).is_ok_and(|meta| {
                meta.is_file() && meta.uid() == user && of_file(&meta) == identity
            })
        });
        if left.is_empty() {
            return;
        }
        for pid in read::pids().unwrap_or_default() {
            match read::maps(pid) {
                Ok(mappings) => mappings.iter().for_each(|m| drop(left.remove(&identity(m)))),
                // One of another user, who may have it if the file's mode lets him.
                Err(Error::Permission { .. }) => left.retain(|_, path| is_private(path)),
                Err(_) => {}
            }
        }
        left.values().for_each(|path| drop(fs::remove_file(path)));
    }
}

pub(crate) fn identity(mapping: &Mapping) -> Identity {
    (mapping.dev, mapping.inode)
}

fn of_file(meta: &fs::Metadata) -> Identity {
    ((rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev())), meta.ino())
}

/// Whether only its owner can open a file.
fn is_private(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    /// A file in `/dev/shm`, mapped until it is dropped.
    struct Mapped(PathBuf, *mut std::ffi::c_void);

    impl Mapped {
        fn new(name: &str) -> Mapped {
            let path = PathBuf::from(format!("/dev/shm/segments-{}-{name}", std::process::id()));
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(true).mode(0o600);
            let file = file.open(&path).unwrap();
            file.set_len(4096).unwrap();
            let (read, shared) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
            // SAFETY: a new mapping that is only looked at from outside.
            let base = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), 4096, read, shared, file.as_fd(), 0)
            };
            Mapped(path, base.unwrap())
        }

        fn identity(&self) -> Identity {
            of_file(&fs::metadata(&self.0).unwrap())
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: unmaps what was mapped above.
            let _ = unsafe { rustix::mm::munmap(self.1, 4096) };
        }
    }

    #[test]
    fn what_was_the_jobs_alone_is_removed() {
        let (own, gone, used) = (Mapped::new("own"), Mapped::new("gone"), Mapped::new("used"));
        let mut segments = Segments::new(own.identity());
        segments.note(std::process::id());
        let paths = [&own, &gone, &used].map(|mapped| mapped.0.clone());
        drop((own, gone));
        segments.remove();
        let there = paths.each_ref().map(|path| path.exists());
        paths.iter().for_each(|path| drop(fs::remove_file(path)));
        drop(used);
        assert_eq!(there, [true, false, true]);
    }
}
