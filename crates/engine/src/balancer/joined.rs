//! Shares the traffic of an aggregate cluster among the priorities of its clusters, one behind the other, as a balancer
//! shares its own among its priorities. Envoy: "aggregate cluster", load balancing.

use super::priority::{Class, Load, PastPriorities, Sizes};
use super::{Balancer, Dice};

/// The shares of several balancers' priorities. They are reckoned anew when one of these has other hosts.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// Which balancer each priority of `load` is of, and where it is there.
    places: Vec<(usize, usize)>,
    sizes: Vec<Sizes>,
    load: Load,
    /// [`Balancer::stamp`] of each when they were reckoned; 0 for one that is not there.
    stamps: Vec<u64>,
}

/// Which of a balancer's hosts, when another has decided that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Among {
    pub(super) priority: usize,
    pub(super) class: Class,
}

impl Joined {
    /// Which of `count` balancers the next request is for, which of its hosts, and the random number for it.
    pub(crate) fn choose<'a>(
        &mut self,
        count: usize,
        balancer: impl Fn(usize) -> Option<&'a Balancer>,
        panic_threshold: u8,
        random: u64,
        mut past: Option<&mut PastPriorities>,
    ) -> Option<(usize, Among, u64)> {
        let stamp = |at| balancer(at).map_or(0, |it| it.stamp);
        let is_known =
            self.stamps.len() == count && (0..count).all(|at| self.stamps[at] == stamp(at));
        if !is_known {
            let sizes = |at| balancer(at).into_iter().flat_map(Balancer::sizes).enumerate();
            let all = (0..count).flat_map(|at| sizes(at).map(move |of| (at, of)));
            let (places, sizes): (Vec<_>, Vec<Sizes>) =
                all.map(|(at, (priority, sizes))| ((at, priority), sizes)).unzip();
            self.load = Load::new(&sizes, panic_threshold);
            (self.places, self.sizes) = (places, sizes);
            self.stamps = (0..count).map(stamp).collect();
        }
        let mut dice = Dice(random);
        // Where no host is healthy and none may panic here, the first one decides for itself, as in Envoy.
        let load = past.as_deref_mut().and_then(|past| past.load(&self.sizes));
        let load = load.unwrap_or(&self.load);
        let (place, class) = load.choose(&mut dice).unwrap_or((0, Class::Healthy));
        if let Some(past) = past {
            past.note(place);
        }
        let (at, priority) = *self.places.get(place)?;
        // Whether it panics is its own balancer's business.
        let class = if class == Class::Degraded { class } else { Class::Healthy };
        Some((at, Among { priority, class }, dice.roll()))
    }
}
