//! Names of procedures as gfortran writes them: `__module_MOD_procedure`, and with an underscore behind them
//! what stands in no module.

/// What stands before a module's name and behind it.
const FRONT: &str = "__";
const MIDDLE: &str = "_MOD_";

/// The main program.
const MAIN: &str = "MAIN__";

/// The name in the source; `None` for what no Fortran compiler has written. Only in a file that has Fortran code
/// an underscore at the end says so.
pub(crate) fn demangled(symbol: &str, is_fortran: bool) -> Option<String> {
    let (symbol, clone) = match symbol.find('.') {
        Some(at) => symbol.split_at_checked(at)?,
        None => (symbol, ""),
    };
    let in_module = symbol.strip_prefix(FRONT).and_then(|rest| rest.split_once(MIDDLE));
    let name = match in_module {
        Some((module, procedure)) if !module.is_empty() && !procedure.is_empty() => {
            format!("{module}::{procedure}")
        }
        _ => {
            let name = symbol.strip_suffix('_').filter(|_| is_fortran && symbol != MAIN)?;
            let is_name = name.starts_with(|c: char| c.is_ascii_lowercase());
            is_name.then(|| name.to_owned())?
        }
    };
    Some(if clone.is_empty() { name } else { format!("{name} [clone {clone}]") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_procedures() {
        for (symbol, name) in [
            ("__heat_MOD_grow", Some("heat::grow")),
            ("__heat_MOD___copy_heat_Field", Some("heat::__copy_heat_Field")),
            ("__heat_MOD_grow.constprop.0", Some("heat::grow [clone .constprop.0]")),
            ("solve_", Some("solve")),
            ("solve_all_", Some("solve_all")),
            ("MAIN__", None),
            ("main", None),
            ("_init_", None),
            ("_", None),
            ("__x_MOD_", None),
            ("___MOD_", None),
        ] {
            assert_eq!(demangled(symbol, true).as_deref(), name, "{symbol}");
        }
        assert_eq!(demangled("solve_", false), None);
        assert_eq!(demangled("__heat_MOD_grow", false).as_deref(), Some("heat::grow"));
    }
}
