//! A directory of plain files in place of a hierarchy of version 2, and of version 1.

use super::*;

/// Removed at the end.
struct Stand(PathBuf);

impl Stand {
    fn new(name: &str, files: &[(&str, &str)]) -> Stand {
        let name = format!("heaptape-stand.{}.{name}", std::process::id());
        let stand = Stand(std::env::temp_dir().join(name));
        fs::create_dir_all(&stand.0).unwrap();
        files.iter().for_each(|(file, text)| fs::write(stand.0.join(file), text).unwrap());
        stand
    }

    fn group(&self, version: u8) -> Group {
        Group::at(version, self.0.clone(), "stand".into()).unwrap()
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PROCS: (&str, &str) = ("cgroup.procs", "");

#[test]
fn a_limit_of_version_2_is_one_with_swap_and_for_all_together() {
    let files =
        [PROCS, ("memory.max", "max"), ("memory.swap.max", "max"), ("memory.oom.group", "0")];
    let stand = Stand::new("second", &files);
    let group = stand.group(2);
    group.limit(1 << 30).unwrap();
    assert_eq!(stand.text("memory.max"), "1073741824");
    // The old value was longer; the kernel takes each write for itself.
    assert!(stand.text("memory.swap.max").starts_with('0'));
    assert!(stand.text("memory.oom.group").starts_with('1'));
}

#[test]
fn files_that_a_kernel_has_not_are_not_made() {
    let stand = Stand::new("older", &[PROCS, ("memory.max", "max")]);
    let group = stand.group(2);
    group.limit(4096).unwrap();
    group.frozen(|| ());
    assert!(group.kill(&|| ()), "there is nobody in it");
    let names = fs::read_dir(&stand.0).unwrap().count();
    assert_eq!(names, 2);
}

#[test]
fn a_limit_of_version_1_is_one_with_swap_where_that_is_counted() {
    let files = [PROCS, ("memory.limit_in_bytes", ""), ("memory.memsw.limit_in_bytes", "")];
    let stand = Stand::new("first", &files);
    stand.group(1).limit(50 << 20).unwrap();
    assert_eq!(stand.text("memory.limit_in_bytes"), "52428800");
    assert_eq!(stand.text("memory.memsw.limit_in_bytes"), "52428800");
}

#[test]
fn processes_of_groups_below_are_its_own() {
    let stand = Stand::new("nested", &[("cgroup.procs", "11\n0\n12\n")]);
    fs::create_dir_all(stand.0.join("a/b")).unwrap();
    fs::write(stand.0.join("a/b/cgroup.procs"), "13\n").unwrap();
    let group = stand.group(2);
    assert_eq!(group.pids(), [11, 12, 13]);
    // One that has processes stays.
    group.remove();
    assert!(stand.0.join("a/b").exists());
}

#[test]
fn frozen_for_a_while_and_killed_by_the_kernel() {
    let files = [PROCS, ("cgroup.freeze", "0"), ("cgroup.kill", "")];
    let stand = Stand::new("frozen", &files);
    let group = stand.group(2);
    let seen = group.frozen(|| stand.text("cgroup.freeze"));
    assert_eq!((seen.as_str(), stand.text("cgroup.freeze").as_str()), ("1", "0"));
    assert!(group.kill(&|| ()));
    assert_eq!(stand.text("cgroup.kill"), "1");
}

#[test]
fn nobody_is_killed_who_is_not_in_it() {
    // A pid that is there, in a list that lies: as if it had been given to another.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let stand = Stand::new("stranger", &[PROCS]);
    let group = stand.group(2);
    group.kill_one(child.id());
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn heaptape_alone_in_its_group_goes_aside() {
    let stand = Stand::new("aside", &[PROCS, ("cgroup.subtree_control", "")]);
    let own = std::process::id().to_string();
    go_aside(&stand.0, "heaptape-1-2").unwrap();
    assert_eq!(stand.text("heaptape-1-2-self/cgroup.procs"), own);
    assert_eq!(stand.text("cgroup.subtree_control"), "+memory");
}

#[test]
fn heaptape_that_went_aside_comes_back_when_the_group_is_gone() {
    let stand = Stand::new("back", &[PROCS, ("cgroup.subtree_control", "")]);
    let name = "heaptape-1-2".to_owned();
    for is_left in [false, true] {
        go_aside(&stand.0, &name).unwrap();
        let aside = stand.0.join("heaptape-1-2-self");
        // The kernel removes a group with its files; the stand-in can't.
        fs::remove_file(aside.join("cgroup.procs")).unwrap();
        let directory = stand.0.join(&name);
        fs::create_dir(&directory).unwrap();
        let procs = if is_left { "4711\n" } else { "" };
        fs::write(directory.join("cgroup.procs"), procs).unwrap();
        let mut group = Group::at(2, directory.clone(), name.clone()).unwrap();
        group.left = Some(stand.0.clone());
        if !is_left {
            fs::remove_file(directory.join("cgroup.procs")).unwrap();
        }
        drop(group);
        assert_eq!((directory.exists(), aside.exists()), (is_left, is_left));
        let control = if is_left { "+memory" } else { "-memory" };
        assert_eq!(stand.text("cgroup.subtree_control"), control);
    }
    assert_eq!(stand.text("cgroup.procs"), std::process::id().to_string());
}

#[test]
#[expect(clippy::print_stderr, reason = "a test says what it had to do without")]
fn a_process_of_another_group_is_not_taken_from_it() {
    let stand = Stand::new("taken", &[PROCS]);
    let own = std::process::id();
    let Some(version) = [1, 2].into_iter().find(|&it| cgroup::path_of(own, it).is_some()) else {
        return eprintln!("this process is in no control group where memory is accounted");
    };
    let mut group = Group::at(version, stand.0.clone(), "no-group-of-ours".into()).unwrap();
    group.home = Some("/another".to_owned());
    let NotTaken { why: sentence, stays_in } = group.take_in(own).unwrap_err();
    assert!(sentence.contains("stays there") && sentence.ends_with('.'), "{sentence}");
    assert_eq!(stand.text("cgroup.procs"), "");
    group.home = cgroup::path_of(own, version);
    assert_eq!(stays_in, group.home);
    let path = stays_in.unwrap();
    assert!(group.is_within(own, std::slice::from_ref(&path)) && !group.is_within(own, &[]));
    assert!(!group.is_within(own, &["/another".to_owned(), format!("{path}/below")]));
    if let Some((above, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) {
        assert!(group.is_within(own, &[above.to_owned()]));
        assert!(!group.is_within(own, &[path[..path.len() - 1].to_owned()]), "half of a name");
    }
    group.take_in(own).unwrap();
    assert_eq!(stand.text("cgroup.procs"), own.to_string());
    // One that is gone is no trouble.
    group.take_in(1 << 23).unwrap();
}

#[test]
fn what_the_dead_have_left_is_removed_and_nothing_else() {
    let stand = Stand::new("stale", &[PROCS]);
    let own = stale::own_name();
    let names = ["heaptape-8388608-5", "heaptape-8388608-5-self", own.as_str(), "user.slice"];
    names.iter().for_each(|name| fs::create_dir(stand.0.join(name)).unwrap());
    // It has something in it yet.
    fs::create_dir_all(stand.0.join("heaptape-8388608-6/child")).unwrap();
    stale::remove_others(&stand.0);
    let left: Vec<bool> = names.iter().map(|name| stand.0.join(name).exists()).collect();
    assert_eq!(left, [false, false, true, true]);
    assert!(stand.0.join("heaptape-8388608-6").exists());
}

#[test]
fn without_a_place_it_is_said_what_is_missing_and_what_to_do() {
    let sentence = Group::make(&Cgroup::default()).unwrap_err();
    assert!(sentence.contains("no cgroup hierarchy") && sentence.ends_with('.'), "{sentence}");
}

#[test]
fn a_group_is_made_under_its_own_name_or_not_at_all() {
    // Directories of a stand-in have no files, so that what was begun has to be taken back.
    let stand = Stand::new("made", &[PROCS]);
    let place = Cgroup {
        version: Some(2),
        ground: Ok(Ground::Below(stand.0.clone())),
        ..Cgroup::default()
    };
    let sentence = Group::make(&place).unwrap_err();
    assert!(sentence.contains(&stale::own_name()), "{sentence}");
    assert!(!stand.0.join(stale::own_name()).exists());
}
