//! Names as D compilers mangle them: `_D4shop5stock5outerFZv` is `shop.stock.outer`.
//!
//! Only the qualified name is told, with the arguments of templates where these are types or have a plain form;
//! parameters and results are left out, as debuggers do for D by default. What the ABI of D
//! (dlang.org/spec/abi.html) does not have stays as it is.

use std::fmt::Write;

/// Deeper than this nothing is unfolded, nor more often.
const MOST_DEPTH: usize = 32;
const MOST_STEPS: usize = 4 << 10;

/// Longer names are left as they are, in bytes.
const LONGEST: usize = 16 << 10;

/// The name in the source; `None` for what no D compiler has written.
pub(crate) fn demangled(symbol: &str) -> Option<String> {
    if symbol == "_Dmain" {
        return Some("D main".to_owned());
    }
    let rest = symbol.strip_prefix("_D")?;
    let first = *rest.as_bytes().first()?;
    if !symbol.is_ascii() || !(first.is_ascii_digit() || first == b'_' || first == b'Q') {
        return None;
    }
    let (symbol, clone) = match symbol.find('.') {
        Some(at) => symbol.split_at_checked(at)?,
        None => (symbol, ""),
    };
    let mut parser =
        Parser { text: symbol.as_bytes(), at: 2, depth: 0, steps: 0, out: String::new() };
    parser.qualified()?;
    // Behind it stands its type, or `Z` for what is none of the source's.
    let has_end = parser.at < parser.text.len();
    let is_cut = parser.peek() == Some(b'Q') && parser.back().is_none();
    if !has_end || is_cut || parser.out.is_empty() || parser.out.len() > LONGEST {
        return None;
    }
    if !clone.is_empty() {
        write!(parser.out, " [clone {clone}]").ok()?;
    }
    Some(parser.out)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    steps: usize,
    out: String,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn starts(&self, text: &[u8]) -> bool {
        self.text.get(self.at..).is_some_and(|rest| rest.starts_with(text))
    }

    fn say(&mut self, text: &str) -> Option<()> {
        self.out.push_str(text);
        (self.out.len() <= LONGEST).then_some(())
    }

    /// Runs a step within another.
    fn within<T>(&mut self, step: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.steps += 1;
        self.depth += 1;
        if self.depth > MOST_DEPTH || self.steps > MOST_STEPS {
            return None;
        }
        let done = step(self);
        self.depth -= 1;
        done
    }

    /// Where a reference back leads to; it is read from where it is told.
    fn back(&mut self) -> Option<usize> {
        let here = self.at;
        if !self.take(b'Q') {
            return None;
        }
        let mut distance = 0usize;
        loop {
            let digit = self.peek()?;
            self.at += 1;
            let (value, is_last) = match digit {
                b'A'..=b'Z' => (digit - b'A', false),
                b'a'..=b'z' => (digit - b'a', true),
                _ => return None,
            };
            distance = distance.checked_mul(26)?.checked_add(usize::from(value))?;
            if is_last {
                return here.checked_sub(distance).filter(|&to| to < here);
            }
        }
    }

    /// What stands at an earlier place.
    fn at<T>(&mut self, place: usize, step: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let here = std::mem::replace(&mut self.at, place);
        let done = self.within(step)?;
        self.at = here;
        Some(done)
    }

    fn number(&mut self) -> Option<usize> {
        let mut number = None;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let before: usize = number.unwrap_or(0);
            number = Some(before.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?);
            self.at += 1;
        }
        number
    }

    /// Names with dots between them. A function's own type may stand between its name and that of what lies in it.
    fn qualified(&mut self) -> Option<()> {
        let mut is_first = true;
        while self.begins_name() {
            if !is_first {
                self.say(".")?;
            }
            is_first = false;
            self.within(Parser::name)?;
            self.type_within()?;
        }
        (!is_first).then_some(())
    }

    /// Passes the type of a function, if names follow it.
    fn type_within(&mut self) -> Option<()> {
        let (here, said) = (self.at, self.out.len());
        if !matches!(self.peek(), Some(b'M' | b'F' | b'U' | b'V' | b'W' | b'R' | b'Y')) {
            return Some(());
        }
        let passed = self.within(|p| {
            p.take(b'M');
            p.modifiers();
            p.function(false)
        });
        self.out.truncate(said);
        if passed.is_none() || !self.begins_name() {
            self.at = here;
        }
        Some(())
    }

    fn begins_name(&self) -> bool {
        match self.peek() {
            Some(b'0'..=b'9') => true,
            Some(b'_') => self.starts(b"__T") || self.starts(b"__U"),
            Some(b'Q') => self.leads_to_name(),
            _ => false,
        }
    }

    /// A reference to a name leads to one, and one to a type does not.
    fn leads_to_name(&self) -> bool {
        let mut ahead = Parser { out: String::new(), ..*self };
        let to = ahead.back().and_then(|to| self.text.get(to).copied());
        to.is_some_and(|byte| byte.is_ascii_digit() || byte == b'_')
    }

    fn name(&mut self) -> Option<()> {
        if self.peek() == Some(b'Q') {
            let to = self.back()?;
            return self.at(to, Parser::name);
        }
        if self.starts(b"__T") || self.starts(b"__U") {
            return self.template();
        }
        let length = self.number()?;
        if length == 0 {
            return self.say("(unnamed)");
        }
        let end = self.at.checked_add(length).filter(|&end| end <= self.text.len())?;
        if self.starts(b"__T") || self.starts(b"__U") {
            // Older compilers told how long an instance is.
            self.template()?;
            return (self.at == end).then_some(());
        }
        let name = std::str::from_utf8(self.text.get(self.at..end)?).ok()?;
        self.at = end;
        match name {
            "__ctor" => self.say("this"),
            "__dtor" => self.say("~this"),
            "__postblit" => self.say("this(this)"),
            name => self.say(name),
        }
    }

    fn template(&mut self) -> Option<()> {
        self.at += 3;
        self.within(Parser::name)?;
        self.say("!(")?;
        let mut is_first = true;
        while !self.take(b'Z') {
            if !is_first {
                self.say(", ")?;
            }
            is_first = false;
            self.take(b'H');
            self.within(Parser::argument)?;
        }
        self.say(")")
    }

    fn argument(&mut self) -> Option<()> {
        let kind = self.peek()?;
        self.at += 1;
        match kind {
            b'T' => self.type_(),
            b'S' => self.qualified(),
            b'V' => {
                let said = self.out.len();
                self.type_()?;
                self.out.truncate(said);
                self.value()
            }
            b'X' => {
                let length = self.number()?;
                let end = self.at.checked_add(length)?;
                let text = std::str::from_utf8(self.text.get(self.at..end)?).ok()?;
                self.at = end;
                self.say(text)
            }
            _ => None,
        }
    }

    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'n' => {
                self.at += 1;
                self.say("null")
            }
            b'i' | b'0'..=b'9' => {
                self.take(b'i');
                let number = self.number()?;
                self.say(&number.to_string())
            }
            b'N' => {
                self.at += 1;
                let number = self.number()?;
                self.say(&format!("-{number}"))
            }
            b'a' | b'w' | b'd' => {
                self.at += 1;
                let length = self.number()?;
                self.take(b'_').then_some(())?;
                self.at = self.at.checked_add(length.checked_mul(2)?)?;
                self.say(if self.at <= self.text.len() { "\"…\"" } else { return None })
            }
            // Others are rare, and where they end is hard to tell.
            _ => None,
        }
    }

    fn modifiers(&mut self) {
        while self.take(b'x') || self.take(b'y') || self.take(b'O') || self.starts(b"Ng") {
            if self.starts(b"Ng") {
                self.at += 2;
            }
        }
    }

    /// The type of a function, from its calling convention to its result, which is left out where names may follow.
    fn function(&mut self, has_result: bool) -> Option<()> {
        if !matches!(self.peek()?, b'F' | b'U' | b'V' | b'W' | b'R' | b'Y') {
            return None;
        }
        self.at += 1;
        // Attributes; `Ng` and the like begin a parameter.
        while self.peek() == Some(b'N')
            && self.text.get(self.at + 1).is_some_and(|b| !matches!(b, b'g' | b'h' | b'k' | b'n'))
        {
            self.at += 2;
        }
        loop {
            match self.peek()? {
                b'X' | b'Y' | b'Z' => {
                    self.at += 1;
                    break;
                }
                _ => {
                    while self.starts(b"Nk")
                        || matches!(self.peek(), Some(b'M' | b'I' | b'J' | b'K' | b'L'))
                    {
                        self.at += 1 + usize::from(self.peek() == Some(b'N'));
                    }
                    self.within(Parser::type_)?;
                }
            }
        }
        if has_result { self.within(Parser::type_) } else { Some(()) }
    }

    fn type_(&mut self) -> Option<()> {
        let kind = self.peek()?;
        if kind == b'Q' {
            let to = self.back()?;
            return self.at(to, Parser::type_);
        }
        self.at += 1;
        if let Some(name) = basic(kind) {
            return self.say(name);
        }
        match kind {
            b'A' => {
                self.within(Parser::type_)?;
                self.say("[]")
            }
            b'G' => {
                let length = self.number()?;
                self.within(Parser::type_)?;
                self.say(&format!("[{length}]"))
            }
            b'H' => {
                let said = self.out.len();
                self.within(Parser::type_)?;
                let key = self.out.split_off(said);
                self.within(Parser::type_)?;
                self.say(&format!("[{key}]"))
            }
            b'P' if matches!(self.peek(), Some(b'F' | b'U' | b'W' | b'V' | b'R' | b'Y')) => {
                self.pointer("function")
            }
            b'P' => {
                self.within(Parser::type_)?;
                self.say("*")
            }
            b'D' => {
                self.modifiers();
                self.pointer("delegate")
            }
            b'C' | b'S' | b'E' | b'T' | b'I' => self.within(Parser::qualified),
            b'x' => self.wrapped("const"),
            b'y' => self.wrapped("immutable"),
            b'O' => self.wrapped("shared"),
            b'N' => match self.peek()? {
                b'g' => {
                    self.at += 1;
                    self.wrapped("inout")
                }
                b'n' => {
                    self.at += 1;
                    self.say("noreturn")
                }
                b'h' => {
                    self.at += 1;
                    self.wrapped("__vector")
                }
                _ => None,
            },
            b'z' => {
                let name = match self.peek()? {
                    b'i' => "cent",
                    b'k' => "ucent",
                    _ => return None,
                };
                self.at += 1;
                self.say(name)
            }
            b'B' => {
                self.say("(")?;
                let mut is_first = true;
                while !self.take(b'Z') {
                    if !is_first {
                        self.say(", ")?;
                    }
                    is_first = false;
                    self.within(Parser::type_)?;
                }
                self.say(")")
            }
            _ => None,
        }
    }

    fn wrapped(&mut self, word: &str) -> Option<()> {
        self.say(word)?;
        self.say("(")?;
        self.within(Parser::type_)?;
        self.say(")")
    }

    fn pointer(&mut self, word: &str) -> Option<()> {
        let said = self.out.len();
        self.within(|p| p.function(true))?;
        self.out.truncate(said);
        self.say(word)
    }
}

fn basic(kind: u8) -> Option<&'static str> {
    Some(match kind {
        b'v' => "void",
        b'g' => "byte",
        b'h' => "ubyte",
        b's' => "short",
        b't' => "ushort",
        b'i' => "int",
        b'k' => "uint",
        b'l' => "long",
        b'm' => "ulong",
        b'f' => "float",
        b'd' => "double",
        b'e' => "real",
        b'o' => "ifloat",
        b'p' => "idouble",
        b'j' => "ireal",
        b'q' => "cfloat",
        b'r' => "cdouble",
        b'c' => "creal",
        b'b' => "bool",
        b'a' => "char",
        b'u' => "wchar",
        b'w' => "dchar",
        b'n' => "typeof(null)",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a compiler wrote them; the names are those of the source.
    #[test]
    fn names_of_functions() {
        for (symbol, name) in [
            ("_Dmain", "D main"),
            ("_D4shop5stock1C1mMFAyaZAi", "shop.stock.C.m"),
            ("_D4shop5stock1C6__ctorMFZCQyQvQr", "shop.stock.C.this"),
            ("_D4shop5stock1C6__dtorMFZv", "shop.stock.C.~this"),
            ("_D4shop5stock1S4growMFiZv", "shop.stock.S.grow"),
            ("_D4shop5stock1S__T6opCallTiZQkFNaNbNiNfiZi", "shop.stock.S.opCall!(int).opCall"),
            ("_D4shop5stock5outerFZ5innerMFNaNbNiNfZv", "shop.stock.outer.inner"),
            ("_D4shop5stock5outerFZ9__lambda2FNaNbNiNfiZi", "shop.stock.outer.__lambda2"),
            ("_D4shop5stock5outerFZv", "shop.stock.outer"),
            (
                "_D4shop5stock__T4tmplTAyaZQkFNaNbNiNfQpZQs",
                "shop.stock.tmpl!(immutable(char)[]).tmpl",
            ),
            (
                "_D4shop5stock__T4tmplTHAyaiZQmFNaNbNiNfQrZQu",
                "shop.stock.tmpl!(int[immutable(char)[]]).tmpl",
            ),
            (
                "_D4shop5stock__T4tmplTSQvQs1SZQoFNaNbNiNfQtZQw",
                "shop.stock.tmpl!(shop.stock.S).tmpl",
            ),
            ("_D4shop5stock__T4tmplTiZQiFNaNbNiNfiZi", "shop.stock.tmpl!(int).tmpl"),
            ("_D8demangle13__T4testVi42Z4testFZv", "demangle.test!(42).test"),
            ("_D8demangle__T4testVii42ZQlFZv", "demangle.test!(42).test"),
            ("_D14TypeInfo_Class6__vtblZ", "TypeInfo_Class.__vtbl"),
            ("_D4shop4growFZv.cold", "shop.grow [clone .cold]"),
        ] {
            assert_eq!(demangled(symbol).as_deref(), Some(name), "{symbol}");
        }
    }

    #[test]
    fn what_no_compiler_wrote() {
        for symbol in [
            "_D",
            "_DYNAMIC",
            "_Dx",
            "_D4",
            "_D9shop",
            "_D4shop",
            "_D4shopQ",
            "_D4shopQz",
            "_D__T",
            "_D4sh\u{e9}pFZv",
        ] {
            assert_eq!(demangled(symbol), None, "{symbol}");
        }
    }

    #[test]
    fn references_that_go_round_and_deep_types_end() {
        for symbol in [
            "_D4shop__T1aTQb".to_owned(),
            format!("_D4shop__T1aT{}", "A".repeat(10_000)),
            format!("_D4shop__T1aT{}ZFZv", "Pi".repeat(10_000)),
            format!("_D{}FZv", "1a".repeat(30_000)),
            format!("_D1a__T1b{}ZFZv", "TB".repeat(3_000)),
            format!("_D1a{}", "__T".repeat(5_000)),
            format!("_D1a__T1bTSQd{}ZFZv", "TQdTQd".repeat(500)),
        ] {
            let _ = demangled(&symbol);
        }
    }
}
