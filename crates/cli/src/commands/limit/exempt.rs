//! `--exempt`: the modules whose blocks are charged nowhere, as the programs are told them.

use std::fs;
use std::path::Path;

use heaptape_collect::{Launch, exempt_fit};

/// The names for the programs, or in one sentence why that can't be. A path is told as it was given, and
/// with what leads to its file.
pub(super) fn names(given: &[String], launch: &Launch) -> Result<Vec<String>, String> {
    let program = launch.file();
    let mut names = Vec::new();
    for name in given {
        if name.is_empty() || name.ends_with('/') || name.contains('\0') {
            return Err(format!("--exempt '{name}' names no file of a library"));
        }
        if program.as_deref().is_some_and(|program| is_of(program, name)) {
            return Err(format!(
                "--exempt {name} is the program itself, and without its own requests there is no limit"
            ));
        }
        names.extend(forms(name));
    }
    names.sort();
    names.dedup();
    if !exempt_fit(&names) {
        return Err(
            "--exempt names too many libraries: there is room for 16, of 512 bytes together"
                .to_owned(),
        );
    }
    Ok(names)
}

/// What the programs are told for a name.
fn forms(name: &str) -> impl Iterator<Item = String> {
    let real = name.contains('/').then(|| fs::canonicalize(name).ok()).flatten();
    let real = real.and_then(|path| path.into_os_string().into_string().ok());
    [Some(name.to_owned()), real].into_iter().flatten()
}

/// Those of the names that met no library: `unmet` are those that the programs were told in vain.
pub(super) fn unmatched(given: &[String], unmet: &[String]) -> Vec<String> {
    let is_in_vain = |name: &&String| forms(name).all(|form| unmet.contains(&form));
    given.iter().filter(is_in_vain).cloned().collect()
}

/// Whether this is the program's own file.
fn is_of(program: &Path, name: &str) -> bool {
    let is_same = || Some(fs::canonicalize(program).ok()? == fs::canonicalize(name).ok()?);
    match name.contains('/') {
        true => Path::new(name) == program || is_same().unwrap_or(false),
        false => program.file_name().is_some_and(|file| file == name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(given: &[&str]) -> Result<Vec<String>, String> {
        let given: Vec<String> = given.iter().map(|&name| name.to_owned()).collect();
        let command = vec!["sh".into(), "libx.so".into()];
        let library = "/no/libheaptape.so".into();
        names(&given, &Launch { command, library, no_aslr: false, python_malloc: false })
    }

    #[test]
    fn names_stay_and_paths_lead_to_their_files() {
        assert_eq!(told(&["libx.so", "libx.so"]), Ok(vec!["libx.so".to_owned()]));
        assert_eq!(told(&["/no/libx.so"]), Ok(vec!["/no/libx.so".to_owned()]));
        let link = told(&["/proc/self/exe"]).unwrap();
        assert_eq!(link.len(), 2, "{link:?}");
    }

    #[test]
    fn what_is_no_library_or_too_much_is_said() {
        for (given, why) in [
            (vec![""], "names no file"),
            (vec!["/usr/lib/"], "names no file"),
            (vec!["sh"], "is the program itself"),
            (vec!["/bin/../bin/sh"], "is the program itself"),
            (vec![&*"x".repeat(512)], "too many"),
        ] {
            assert!(told(&given).is_err_and(|error| error.contains(why)), "{given:?}");
        }
        let many: Vec<String> = (0..17).map(|number| format!("lib{number}.so")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(told(&many).is_err() && told(&many[1..]).is_ok());
    }

    #[test]
    fn a_name_is_in_vain_if_nothing_that_it_stands_for_was_loaded() {
        let given = ["libx.so", "/proc/self/exe", "/no/such.so"].map(str::to_owned);
        let unmet = ["/no/such.so", "/proc/self/exe"].map(str::to_owned);
        assert_eq!(unmatched(&given, &unmet), ["/no/such.so"]);
    }
}
