use heaptape_collect::*;
struct W;
impl Watch for W {
    fn notice(&mut self, s: &str) {
        eprintln!("notice: {s}")
    }
    fn waiting(&mut self, p: &[u32]) {
        eprintln!("waiting {p:?}")
    }
}
impl CountWatch for W {
    fn refused(&mut self, r: &Refusal<'_>) {
        eprintln!("refused {r:?}")
    }
    fn stopped(&mut self, p: &[u32]) {
        eprintln!("stopped {p:?}")
    }
}
fn main() {
    let a: Vec<_> = std::env::args_os().skip(1).collect();
    let e = |n: &str| std::env::var(n).ok();
    let c = Counting {
        launch: Launch {
            command: a,
            library: e("LIB").unwrap().into(),
            no_aslr: false,
            python_malloc: false,
        },
        limit: e("LIMIT").map(|l| l.parse().unwrap()),
        basis: Default::default(),
        on_limit: match e("ON").as_deref() {
            Some("kill") => heaptape_wire::ledger::OnLimit::Kill,
            Some("stop") => heaptape_wire::ledger::OnLimit::Stop,
            _ => heaptape_wire::ledger::OnLimit::Fail,
        },
        exact: e("EXACT").is_some(),
        details: e("BRIEF").is_none(),
        count_launchers: false,
        no_wait: false,
    };
    let (mut j, x) = count(&c, &mut W).unwrap();
    for p in &mut j.processes {
        p.sums.bins.retain(|b| b.count > 0);
        let b = p.sums.bins.len();
        p.sums.bins.clear();
        p.sums.modules.clear();
        eprintln!("{b} bins");
        if e("V").is_none() {
            p.modules.clear();
        }
    }
    eprintln!("{j:#?}\n{x:?} {:?}", j.verdict());
}
