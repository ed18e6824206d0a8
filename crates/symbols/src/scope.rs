//! Where a function belongs that has a short name only: the namespaces, types and functions around it.
//!
//! Compilers write mangled names of what other files may call, and no more than the plain name of the rest, as of
//! functions in unnamed namespaces. What is around it stands around its entry; an inlined function's entry
//! leads to the one where that is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use addr2line::gimli::{
    self, AttributeValue, DebugInfoOffset, DwTag, Dwarf, Reader, Result, Unit, UnitHeader,
    UnitOffset, UnitRef,
};

use crate::piece::Piece;

/// The unit that an entry is in, if it is not the one that was begun with.
type OtherUnit = Option<Arc<Unit<Piece>>>;

/// How often an entry may lead to another.
const MOST_STEPS: usize = 8;

/// Scopes in one another beyond this are left out.
const MOST_DEPTH: usize = 64;

/// Longer names are left out, in bytes.
const LONGEST: usize = 1 << 12;

/// The names of all scopes of a file take no more than this, in bytes.
const ROOM: usize = 128 << 20;

/// What a function, and a scope, costs beside the name.
const PER_ENTRY: usize = 32;

/// More units than this are not gone through for scopes.
const MOST_UNITS: usize = 4 << 10;

/// What is around the functions of a unit, by the offset of their entries.
#[derive(Default)]
struct Scopes {
    around: HashMap<usize, u32>,
    names: Vec<String>,
}

/// The scopes of the units that were asked for so far.
pub(crate) struct AllScopes {
    room: usize,
    scopes: HashMap<usize, Scopes>,
    /// All units by where they begin, and those that an entry of another one has led to.
    headers: Option<BTreeMap<usize, UnitHeader<Piece>>>,
    units: HashMap<usize, Arc<Unit<Piece>>>,
}

impl Default for AllScopes {
    fn default() -> AllScopes {
        AllScopes { room: ROOM, scopes: HashMap::new(), headers: None, units: HashMap::new() }
    }
}

impl AllScopes {
    /// What is around the function that an entry of a unit is about; `None` where nothing is known to be.
    pub(crate) fn around(
        &mut self,
        unit: UnitRef<'_, Piece>,
        entry: UnitOffset<usize>,
    ) -> Option<&str> {
        let (other, entry) = self.origin(unit, entry).ok()?;
        let unit = other.as_ref().map_or(unit, |other| UnitRef::new(unit.dwarf, other));
        let key = unit.header.debug_info_offset()?.0;
        if !self.scopes.contains_key(&key) {
            if self.scopes.len() >= MOST_UNITS {
                return None;
            }
            // What was found before an error holds.
            let mut scopes = Scopes::default();
            let _ = scopes.fill(unit, &mut self.room);
            self.scopes.insert(key, scopes);
        }
        let scopes = self.scopes.get(&key)?;
        let name = *scopes.around.get(&entry.0)?;
        scopes.names.get(name as usize).map(String::as_str)
    }

    /// The entry that says what an entry is about, with its unit if that is another one.
    fn origin(
        &mut self,
        first: UnitRef<'_, Piece>,
        mut entry: UnitOffset<usize>,
    ) -> Result<(OtherUnit, UnitOffset<usize>)> {
        let mut other = None;
        for _ in 0..MOST_STEPS {
            let unit = other.as_deref().map_or(first, |other| UnitRef::new(first.dwarf, other));
            match next(unit, entry)? {
                Some(AttributeValue::UnitRef(offset)) => entry = offset,
                Some(AttributeValue::DebugInfoRef(offset)) => {
                    let Some(unit) = self.unit_at(first.dwarf, offset)? else { break };
                    let Some(offset) = offset.to_unit_offset(&unit.header) else { break };
                    (entry, other) = (offset, Some(unit));
                }
                _ => break,
            }
        }
        Ok((other, entry))
    }

    /// The unit that an offset lies in.
    fn unit_at(
        &mut self,
        dwarf: &Dwarf<Piece>,
        offset: DebugInfoOffset,
    ) -> Result<Option<Arc<Unit<Piece>>>> {
        if self.headers.is_none() {
            let (mut headers, mut units) = (BTreeMap::new(), dwarf.units());
            while let Some(header) = units.next()? {
                headers.extend(header.debug_info_offset().map(|offset| (offset.0, header)));
            }
            self.headers = Some(headers);
        }
        let below = self.headers.as_ref().and_then(|all| all.range(..=offset.0).next_back());
        let Some((&start, header)) = below else { return Ok(None) };
        if let Some(known) = self.units.get(&start) {
            return Ok(Some(Arc::clone(known)));
        }
        let unit = Arc::new(dwarf.unit(header.clone())?);
        if self.units.len() < MOST_UNITS {
            self.units.insert(start, Arc::clone(&unit));
        }
        Ok(Some(unit))
    }
}

/// The entry that an entry leads to.
fn next(
    unit: UnitRef<'_, Piece>,
    entry: UnitOffset<usize>,
) -> Result<Option<AttributeValue<Piece>>> {
    let mut entries = unit.entries_raw(Some(entry))?;
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(None) };
    let mut next = None;
    for spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(*spec)?;
        if matches!(attribute.name(), gimli::DW_AT_abstract_origin | gimli::DW_AT_specification) {
            next = Some(attribute.value());
        }
    }
    Ok(next)
}

impl Scopes {
    /// Takes in those of a unit, as far as there is room.
    fn fill(&mut self, unit: UnitRef<'_, Piece>, room: &mut usize) -> Result<()> {
        let mut entries = unit.entries_raw(None)?;
        // The scopes that are open, by the depth that they stand at, and the name of all together.
        let mut open: Vec<(isize, u32)> = Vec::new();
        while !entries.is_empty() {
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            open.retain(|scope| scope.0 < depth);
            let (tag, children) = (abbreviation.tag(), abbreviation.has_children());
            let is_scope = is_scope(tag) && children && open.len() < MOST_DEPTH;
            if tag == gimli::DW_TAG_subprogram
                && let Some(scope) = open.last()
            {
                if !take(room, PER_ENTRY) {
                    return Ok(());
                }
                self.around.insert(offset.0, scope.1);
            }
            if !is_scope {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut name = None;
            let mut is_mangled = false;
            for spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(*spec)?;
                match attribute.name() {
                    gimli::DW_AT_name => name = unit.attr_string(attribute.value()).ok(),
                    gimli::DW_AT_linkage_name => is_mangled = true,
                    _ => {}
                }
            }
            if tag == gimli::DW_TAG_subprogram && (is_mangled || name.is_none()) {
                continue;
            }
            let own = match &name {
                Some(name) => name.to_string_lossy()?.into_owned(),
                None if tag == gimli::DW_TAG_namespace => "(anonymous namespace)".to_owned(),
                None => "{unnamed}".to_owned(),
            };
            let outer = open.last().and_then(|scope| self.names.get(scope.1 as usize));
            let whole = outer.map_or(own.clone(), |outer| format!("{outer}::{own}"));
            if whole.len() > LONGEST {
                continue;
            }
            if !take(room, PER_ENTRY + whole.len()) {
                return Ok(());
            }
            open.push((depth, self.names.len() as u32));
            self.names.push(whole);
        }
        Ok(())
    }
}

/// Takes so much of what room is left, if it is there.
fn take(room: &mut usize, size: usize) -> bool {
    let left = room.checked_sub(size);
    *room = left.unwrap_or(0);
    left.is_some()
}

fn is_scope(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_interface_type
            | gimli::DW_TAG_module
            | gimli::DW_TAG_subprogram
    )
}
