//! Which node has which slots.

use std::fmt;

use redis::Value;

use crate::slots::SLOTS;

/// One server process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Node {
    /// Reads `host:port`, as redirections have it. A host that is left out is that of the node that
    /// sent it.
    pub fn redirected(text: &str, from: &Node) -> Option<Node> {
        let (host, port) = text.rsplit_once(':')?;
        let host = if host.is_empty() { &from.host } else { host };
        Some(Node { host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// A master and its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub master: Node,
    pub replicas: Vec<Node>,
}

/// Which node has which slots.
#[derive(Clone, Debug)]
pub(crate) enum Topology {
    /// One server has everything.
    Single(Node),
    /// A cluster: the shard of every slot, or [`NOBODY`].
    Cluster { shards: Vec<Shard>, owners: Vec<u16> },
}

/// The shard of a slot that no master serves.
const NOBODY: u16 = u16::MAX;

impl Topology {
    /// Reads the reply to CLUSTER SLOTS, which `from` sent; None if it is not one.
    ///
    /// It is an array of ranges: first slot, last slot, then the master and its replicas, each as
    /// host, port and more.
    pub fn from_slots(reply: &Value, from: &Node) -> Option<Topology> {
        let Value::Array(ranges) = reply else { return None };
        let mut shards: Vec<Shard> = Vec::new();
        let mut owners = vec![NOBODY; usize::from(SLOTS)];
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = range.as_slice() else {
                return None;
            };
            let slots = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
            let mut nodes = nodes.iter().filter_map(|node| node_of(node, from));
            let Some(master) = nodes.next() else { continue };
            let shard = Shard { master, replicas: nodes.collect() };
            let known = shards.iter().position(|known| known.master == shard.master);
            let index = known.unwrap_or_else(|| {
                shards.push(shard);
                shards.len() - 1
            });
            owners.get_mut(slots)?.fill(u16::try_from(index).ok()?);
        }
        Some(Topology::Cluster { shards, owners })
    }

    /// Returns who has a slot: the master, and its replicas.
    pub fn shard(&self, slot: u16) -> Option<(&Node, &[Node])> {
        match self {
            Topology::Single(node) => Some((node, &[])),
            Topology::Cluster { shards, owners } => {
                let shard = shards.get(usize::from(owners[usize::from(slot)]))?;
                Some((&shard.master, &shard.replicas))
            }
        }
    }

    /// Returns all masters.
    pub fn masters(&self) -> Vec<Node> {
        match self {
            Topology::Single(node) => vec![node.clone()],
            Topology::Cluster { shards, .. } => {
                shards.iter().map(|shard| shard.master.clone()).collect()
            }
        }
    }

    /// Returns all nodes.
    pub fn nodes(&self) -> Vec<Node> {
        match self {
            Topology::Single(node) => vec![node.clone()],
            Topology::Cluster { shards, .. } => shards
                .iter()
                .flat_map(|shard| std::iter::once(&shard.master).chain(&shard.replicas))
                .cloned()
                .collect(),
        }
    }

    /// Enters a redirection: this node has this slot now.
    pub fn moved(&mut self, slot: u16, node: &Node) {
        let Topology::Cluster { shards, owners } = self else { return };
        let known = shards.iter().position(|shard| shard.master == *node);
        let index = known.unwrap_or_else(|| {
            shards.push(Shard { master: node.clone(), replicas: Vec::new() });
            shards.len() - 1
        });
        if let (Some(owner), Ok(index)) = (owners.get_mut(usize::from(slot)), u16::try_from(index))
        {
            *owner = index;
        }
    }
}

/// Reads a node of CLUSTER SLOTS. One that does not know its own address is where it was asked.
fn node_of(value: &Value, from: &Node) -> Option<Node> {
    let Value::Array(fields) = value else { return None };
    let [host, Value::Int(port), ..] = fields.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => "",
        _ => return None,
    };
    let host = if host.is_empty() { &from.host } else { host };
    (host != "?").then_some(Node { host: host.to_owned(), port: u16::try_from(*port).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16) -> Node {
        Node { host: host.to_owned(), port }
    }

    /// The first slot, the last, and the nodes that have them.
    type Range<'a> = (i64, i64, &'a [(&'a str, i64)]);

    fn reply(ranges: &[Range<'_>]) -> Value {
        let of_node = |(host, port): &(&str, i64)| {
            Value::Array(vec![Value::BulkString(host.as_bytes().to_vec()), Value::Int(*port)])
        };
        let of_range = |(first, last, nodes): &Range<'_>| {
            let mut range = vec![Value::Int(*first), Value::Int(*last)];
            range.extend(nodes.iter().map(of_node));
            Value::Array(range)
        };
        Value::Array(ranges.iter().map(of_range).collect())
    }

    #[test]
    fn slots_are_found_and_redirections_entered() {
        let asked = node("here", 1);
        let reply = reply(&[
            (0, 99, &[("a", 1), ("b", 2)]),
            (100, 199, &[("", 3), ("?", 4)]),
            (200, 16_000, &[("a", 1), ("b", 2)]),
        ]);
        let mut topology = Topology::from_slots(&reply, &asked).expect("it is valid");
        assert_eq!(topology.shard(0), Some((&node("a", 1), &[node("b", 2)][..])));
        assert_eq!(topology.shard(150), Some((&node("here", 3), &[][..])));
        assert_eq!(topology.shard(16_001), None);
        assert_eq!(topology.masters(), [node("a", 1), node("here", 3)]);
        assert_eq!(topology.nodes().len(), 3);
        topology.moved(0, &node("c", 9));
        assert_eq!(topology.shard(0).map(|(master, _)| master), Some(&node("c", 9)));
        assert_eq!(topology.shard(1).map(|(master, _)| master), Some(&node("a", 1)));
    }

    #[test]
    fn replies_that_are_something_else_are_refused() {
        let asked = node("here", 1);
        for reply in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            reply(&[(0, 16_384, &[("a", 1)])]),
            reply(&[(-1, 5, &[("a", 1)])]),
        ] {
            assert!(Topology::from_slots(&reply, &asked).is_none(), "{reply:?}");
        }
        let empty =
            Topology::from_slots(&reply(&[]), &asked).expect("a cluster that is not joined");
        assert_eq!(empty.shard(0), None);
    }

    #[test]
    fn redirections_are_read() {
        let from = node("here", 1);
        assert_eq!(Node::redirected("127.0.0.1:7000", &from), Some(node("127.0.0.1", 7000)));
        assert_eq!(Node::redirected(":7000", &from), Some(node("here", 7000)));
        assert_eq!(Node::redirected("::1:7000", &from), Some(node("::1", 7000)));
        assert_eq!(Node::redirected("7000", &from), None);
        assert_eq!(Node::redirected("h:x", &from), None);
    }
}
