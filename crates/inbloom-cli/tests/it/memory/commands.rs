//! Every command of the table, repeated and unread: in pipelines, and between MULTI and EXEC.

use inbloom_server::command::Command;
use inbloom_server::command_table;
use inbloom_server::users::Class;

use crate::memory::server::{Client, Server, flood, request};

/// The words with which a command that a writer may run makes as much as it can.
fn sample(name: &str) -> Option<&'static str> {
    Some(match name {
        "bf.add" => "bf.add f x",
        "bf.card" => "bf.card f",
        "bf.debug" => "bf.debug f",
        "bf.exists" => "bf.exists f x",
        "bf.info" => "bf.info f",
        "bf.insert" => "bf.insert f ITEMS a b c d",
        "bf.madd" => "bf.madd f a b c d",
        "bf.mexists" => "bf.mexists f a b c d",
        "bf.reserve" => "bf.reserve f 0.01 100",
        "bf.scandump" => "bf.scandump big 1",
        "cf.add" => "cf.add c x",
        "cf.addnx" => "cf.addnx c x",
        "cf.compact" => "cf.compact c",
        "cf.count" => "cf.count c x",
        "cf.debug" => "cf.debug c",
        "cf.del" => "cf.del c x",
        "cf.exists" => "cf.exists c x",
        "cf.info" => "cf.info c",
        "cf.insert" => "cf.insert c ITEMS a b c",
        "cf.insertnx" => "cf.insertnx c ITEMS a b c",
        "cf.mexists" => "cf.mexists c a b c",
        "cf.reserve" => "cf.reserve c 100",
        "cf.scandump" => "cf.scandump bigc 1",
        "ib.checkany" => "ib.checkany 2 f big ITEMS a b c d",
        "ib.del" => "ib.del k a",
        "ib.estimate" => "ib.estimate f",
        "ib.merge" => "ib.merge m f",
        "copy" => "copy f g REPLACE",
        "dbsize" => "dbsize",
        "del" => "del nothing",
        "dump" => "dump big",
        "exists" => "exists f f f f",
        "expire" => "expire f 1000",
        "expireat" => "expireat f 99999999999",
        "expiretime" => "expiretime f",
        "keys" => "keys *",
        "move" => "move f 3",
        "object|encoding" => "object encoding f",
        "object|freq" => "object freq f",
        "object|idletime" => "object idletime f",
        "object|refcount" => "object refcount f",
        "object|help" => "object help",
        "persist" => "persist f",
        "pexpire" => "pexpire f 1000000",
        "pexpireat" => "pexpireat f 99999999999999",
        "pexpiretime" => "pexpiretime f",
        "pttl" => "pttl f",
        "randomkey" => "randomkey",
        "rename" => "rename f f",
        "renamenx" => "renamenx f big",
        "scan" => "scan 0 COUNT 1000000",
        "touch" => "touch f",
        "ttl" => "ttl f",
        "type" => "type f",
        "unlink" => "unlink nothing",
        "auth" => "auth writer w",
        "client|caching" => "client caching yes",
        "client|getname" => "client getname",
        "client|getredir" => "client getredir",
        "client|help" => "client help",
        "client|id" => "client id",
        "client|info" => "client info",
        "client|no-evict" => "client no-evict on",
        "client|no-touch" => "client no-touch on",
        // Not OFF: then nothing would be written, and nothing could grow.
        "client|reply" => "client reply on",
        "client|setinfo" => "client setinfo lib-name x",
        "client|setname" => "client setname x",
        "client|tracking" => "client tracking off",
        "client|trackinginfo" => "client trackinginfo",
        "client|unblock" => "client unblock 1",
        "echo" => "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "hello" => "hello 3 AUTH writer w SETNAME x",
        "ping" => "ping aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "quit" => "quit",
        "reset" => "reset",
        "select" => "select 0",
        "discard" => "discard",
        "exec" => "exec",
        "multi" => "multi",
        "unwatch" => "unwatch",
        "watch" => "watch f g big",
        "cluster|countkeysinslot" => "cluster countkeysinslot 1",
        "cluster|getkeysinslot" => "cluster getkeysinslot 1 1",
        "cluster|help" => "cluster help",
        "cluster|info" => "cluster info",
        "cluster|keyslot" => "cluster keyslot x",
        "cluster|links" => "cluster links",
        "cluster|myid" => "cluster myid",
        "cluster|nodes" => "cluster nodes",
        "cluster|replicas" => "cluster replicas x",
        "cluster|shards" => "cluster shards",
        "cluster|slots" => "cluster slots",
        "readonly" => "readonly",
        "readwrite" => "readwrite",
        "psubscribe" => "psubscribe a b c",
        "publish" => "publish a b",
        "pubsub" => "pubsub channels",
        "punsubscribe" => "punsubscribe",
        "spublish" => "spublish a b",
        "ssubscribe" => "ssubscribe a b c",
        "subscribe" => "subscribe a b c",
        "sunsubscribe" => "sunsubscribe",
        "unsubscribe" => "unsubscribe",
        "acl|cat" => "acl cat",
        "acl|help" => "acl help",
        "acl|whoami" => "acl whoami",
        "command" => "command",
        "command|count" => "command count",
        "command|docs" => "command docs",
        "command|getkeys" => "command getkeys bf.madd f a b c",
        "command|getkeysandflags" => "command getkeysandflags bf.madd f a b c",
        "command|help" => "command help",
        "command|info" => "command info",
        "command|list" => "command list",
        "config|help" => "config help",
        "debug|help" => "debug help",
        "info" => "info everything",
        "lastsave" => "lastsave",
        "latency|doctor" => "latency doctor",
        "latency|help" => "latency help",
        "latency|histogram" => "latency histogram",
        "latency|history" => "latency history command",
        "latency|latest" => "latency latest",
        "memory|doctor" => "memory doctor",
        "memory|help" => "memory help",
        "memory|stats" => "memory stats",
        "memory|usage" => "memory usage f",
        "module|help" => "module help",
        "module|list" => "module list",
        "role" => "role",
        "slowlog|get" => "slowlog get 128",
        "slowlog|help" => "slowlog help",
        "slowlog|len" => "slowlog len",
        "time" => "time",
        "wait" => "wait 0 0",
        "waitaof" => "waitaof 0 0 0",
        _ => return None,
    })
}

/// All commands that are no admin's, with subcommands in the place of those that have some.
fn commands() -> Vec<&'static Command> {
    let all = command_table::commands().flat_map(|command| match command.subcommands {
        [] => std::slice::from_ref(command).iter(),
        subcommands => subcommands.iter(),
    });
    all.filter(|command| command.class() != Class::Admin).collect()
}

/// Filters for the samples: small ones, one of 8 MB of each family, and many names.
fn fill(server: &Server) {
    let mut client = server.connect("writer");
    for line in [
        "BF.ADD f x",
        "CF.ADD c x",
        "BF.RESERVE k 0.01 100 KIND counting",
        "BF.RESERVE big 0.01 6000000",
        "BF.ADD big x",
        "CF.RESERVE bigc 4000000",
        "CF.ADD bigc x",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let reply = client.ask(&words);
        assert!(matches!(&*reply, "+OK" | ":1"), "{line}: {reply}");
    }
    for at in 0..10_000 {
        assert_eq!(client.ask(&["BF.ADD", &format!("name:{at}:{:0>40}", at), "x"]), ":1");
    }
}

#[test]
fn every_command_repeated_and_unread_stays_within_the_limits() {
    let server = Server::start();
    fill(&server);
    let unknown: Vec<&str> =
        commands().iter().map(|row| row.name).filter(|name| sample(name).is_none()).collect();
    assert_eq!(unknown, [""; 0], "class these commands in `sample`");
    for group in commands().chunks(6) {
        let (mut clients, mut bytes) = (Vec::new(), Vec::new());
        for row in group {
            let words: Vec<&str> = sample(row.name).unwrap().split(' ').collect();
            let one = request(&words);
            for user in ["reader", "writer"] {
                clients.push(server.connect(user));
                bytes.push(one.repeat((512 << 10) / one.len()));
                clients.push(server.connect(user));
                let queue = one.repeat((100 << 10) / one.len());
                bytes.push([request(&["MULTI"]), queue, request(&["EXEC"])].concat());
            }
        }
        flood(&clients, &bytes);
        let names: Vec<&str> = group.iter().map(|row| row.name).collect();
        server.check(&format!("{names:?}"));
    }
}

#[test]
fn a_transaction_of_long_replies_ends_at_the_limit_with_an_error() {
    let server = Server::start();
    let mut client = server.connect("reader");
    assert_eq!(client.ask(&["MULTI"]), "+OK");
    for _ in 0..4000 {
        assert_eq!(client.ask(&["COMMAND", "DOCS"]), "+QUEUED");
    }
    let refusal = client.ask(&["EXEC"]);
    assert!(refusal.contains("--max-client-memory"), "{:?}", &refusal[..refusal.len().min(200)]);
    assert_eq!(client.line(), "", "it is disconnected");
    server.check("MULTI of COMMAND DOCS");
}

#[test]
fn a_reply_too_long_for_the_limit_is_refused_before_it_is_built() {
    let server = Server::start();
    let mut writer = server.connect("writer");
    assert_eq!(writer.ask(&["BF.RESERVE", "f", "0.01", "20000000"]), "+OK");
    let mut clients: Vec<Client> = (0..12).map(|_| server.connect("reader")).collect();
    flood(&clients, &vec![request(&["DUMP", "f"]); 12]);
    let replies: Vec<String> = clients.iter_mut().map(|client| client.line()).collect();
    let refused = replies.iter().filter(|reply| reply.contains("--max-")).count();
    assert!(refused >= 11, "at most one fits: {replies:?}");
    server.check("DUMP");
}
