//! The names that were told, each held once, and no more of them than there is room for.
//!
//! A foreign file can name each of its functions at endless length, by names that end in one another or that unfold.

use std::collections::HashSet;
use std::sync::Arc;

/// Names take no more than this together, in bytes: some ten times those of a browser.
const MOST: usize = 512 << 20;

/// What a name costs beside its bytes.
const PER_TEXT: usize = 64;

/// Names of functions and files.
pub(crate) struct Texts {
    all: HashSet<Arc<str>>,
    room: usize,
    is_full: bool,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts::with_room(MOST)
    }
}

impl Texts {
    fn with_room(room: usize) -> Texts {
        Texts { all: HashSet::new(), room, is_full: false }
    }

    /// The same text, held; `None` where there is no room for it.
    pub(crate) fn held(&mut self, text: Arc<str>) -> Option<Arc<str>> {
        if let Some(known) = self.all.get(&text) {
            return Some(Arc::clone(known));
        }
        let Some(room) = self.room.checked_sub(PER_TEXT + text.len()) else {
            self.is_full = true;
            return None;
        };
        self.room = room;
        self.all.insert(Arc::clone(&text));
        Some(text)
    }

    /// Whether there was one without room.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_held_once_and_no_more_of_them_than_have_room() {
        let mut texts = Texts::with_room(2 * PER_TEXT + 5);
        let first = texts.held("one".into()).unwrap();
        assert!(Arc::ptr_eq(&first, &texts.held("one".into()).unwrap()));
        assert!(texts.held("x".repeat(1 << 20).into()).is_none() && texts.is_full());
        assert!(texts.held("it".into()).is_some());
        assert!(texts.held("".into()).is_none());
        assert!(texts.held("one".into()).is_some());
    }
}
