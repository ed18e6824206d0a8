//! The `Name:   value kB` lines that several files below `/proc` are made of.

/// The lines of `text` as name and value; lines without a colon are left out.
pub(crate) fn fields(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim(), value.trim()))
    })
}

/// The value of the first line with this name.
pub(crate) fn find<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    fields(text).find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// A value such as `1234 kB`, in bytes.
pub(crate) fn bytes(value: &str) -> Option<u64> {
    let number = value.strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kilobytes_are_sizes() {
        assert_eq!(bytes("12 kB"), Some(12288));
        assert_eq!(bytes("12"), None);
        assert_eq!(bytes("-1 kB"), None);
        assert_eq!(bytes("18446744073709551615 kB"), None);
    }
}
