//! Which arrows are to be taken the other way round, so that no cycle is left.

use super::Arrow;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Unseen,
    /// On the way that is being walked.
    Open,
    Done,
}

/// Whether each arrow is turned. The first boxes are the last to be called: walks begin at those that nobody calls.
pub(super) fn turned(boxes: usize, arrows: &[Arrow]) -> Vec<bool> {
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); boxes];
    let mut is_called = vec![false; boxes];
    for (number, arrow) in arrows.iter().enumerate() {
        leaving[arrow.from].push(number);
        is_called[arrow.to] = true;
    }
    let mut turned = vec![false; arrows.len()];
    let mut states = vec![State::Unseen; boxes];
    let tops = (0..boxes).filter(|&node| !is_called[node]);
    for start in tops.chain(0..boxes) {
        if states[start] != State::Unseen {
            continue;
        }
        states[start] = State::Open;
        // A node with how many of its arrows were followed.
        let mut walk = vec![(start, 0)];
        while let Some((node, followed)) = walk.last_mut() {
            let Some(&arrow) = leaving[*node].get(*followed) else {
                states[*node] = State::Done;
                walk.pop();
                continue;
            };
            *followed += 1;
            let next = arrows[arrow].to;
            match states[next] {
                State::Open => turned[arrow] = true,
                State::Unseen => {
                    states[next] = State::Open;
                    walk.push((next, 0));
                }
                State::Done => {}
            }
        }
    }
    turned
}
