//! What operators and tools ask of the server: bytes in, bytes out.

use std::sync::Arc;

use inbloom_server::resp::Protocol;
use inbloom_server::session::{Next, Place, Session};
use inbloom_server::{Config, Server};

/// A client of a server without sockets.
struct Client {
    server: Arc<Server>,
    session: Session,
}

impl Client {
    fn new() -> Client {
        Client::of(&Arc::new(Server::new(Config::default())))
    }

    fn of(server: &Arc<Server>) -> Client {
        let known = server.clients.enter("10.0.0.7:5000".into(), "10.0.0.1:7379".into());
        Client { server: Arc::clone(server), session: Session::new(known, server) }
    }

    fn resp3() -> Client {
        let mut client = Client::new();
        client.session.state.protocol = Protocol::Resp3;
        client
    }

    /// Sends words and returns the reply, CR LF as a blank.
    fn send(&mut self, words: &[&str]) -> String {
        let mut input = format!("*{}\r\n", words.len());
        for word in words {
            input.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let mut out = Vec::new();
        let progress = self.session.process(&self.server, input.as_bytes(), &mut out, Place::Own);
        assert_eq!(progress.consumed, input.len());
        let text = String::from_utf8(out).expect("only text is asked for");
        text.strip_suffix("\r\n").unwrap_or(&text).replace("\r\n", " ")
    }

    /// As [`Client::send`], for words without blanks in them; `""` is an empty one.
    fn ask(&mut self, line: &str) -> String {
        let words: Vec<&str> =
            line.split(' ').map(|word| if word == "\"\"" { "" } else { word }).collect();
        self.send(&words)
    }

    /// The value of a line of INFO.
    fn info(&mut self, section: &str, field: &str) -> Option<String> {
        let mut out = Vec::new();
        let input = format!("INFO {section}\r\n");
        self.session.process(&self.server, input.as_bytes(), &mut out, Place::Own);
        let text = String::from_utf8(out).expect("INFO is text");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")))?;
        Some(line.to_owned())
    }
}

/// Asks each, and compares.
fn dialogue(client: &mut Client, lines: &[(&str, &str)]) {
    for (question, answer) in lines {
        assert_eq!(client.ask(question), *answer, "{question}");
    }
}

const FAILED: &str = "-ERR CONFIG SET failed (possibly related to argument";

#[test]
fn config_answers_as_redisbloom_was_recorded() {
    let mut client = Client::new();
    // Transcript 15, all lines that are about CONFIG, in order.
    dialogue(
        &mut client,
        &[
            ("CONFIG GET bf-error-rate", "*2 $13 bf-error-rate $4 0.01"),
            ("CONFIG GET bf-initial-size", "*2 $15 bf-initial-size $3 100"),
            ("CONFIG GET bf-expansion-factor", "*2 $19 bf-expansion-factor $1 2"),
            ("CONFIG GET cf-bucket-size", "*2 $14 cf-bucket-size $1 2"),
            ("CONFIG GET cf-initial-size", "*2 $15 cf-initial-size $4 1024"),
            ("CONFIG GET cf-max-iterations", "*2 $17 cf-max-iterations $2 20"),
            ("CONFIG GET cf-expansion-factor", "*2 $19 cf-expansion-factor $1 1"),
            ("CONFIG GET cf-max-expansions", "*2 $17 cf-max-expansions $2 32"),
            ("CONFIG SET bf-initial-size 7", "+OK"),
            ("CONFIG SET bf-error-rate 0.000001", "+OK"),
            ("CONFIG SET bf-expansion-factor 3", "+OK"),
            ("BF.MADD a x0 x1 x2 x3 x4 x5 x6 x7 x8 x9", "*10 :1 :1 :1 :1 :1 :1 :1 :1 :1 :1"),
            ("BF.INFO a CAPACITY", "*1 :28"),
            ("BF.INFO a FILTERS", "*1 :2"),
            ("BF.INFO a EXPANSION", "*1 :3"),
            ("BF.INSERT b ITEMS x", "*1 :1"),
            ("BF.INFO b CAPACITY", "*1 :7"),
            ("BF.RESERVE c 0.01 100", "+OK"),
            ("BF.INFO c EXPANSION", "*1 :3"),
            ("CONFIG SET bf-expansion-factor 0", "+OK"),
            ("BF.ADD d x", ":1"),
            ("BF.INFO d EXPANSION", "*1 $-1"),
            ("BF.RESERVE e 0.01 100", "+OK"),
            ("BF.INFO e EXPANSION", "*1 $-1"),
            ("BF.RESERVE f 0.01 100 EXPANSION 2", "-Nonscaling filters cannot expand"),
            ("BF.INSERT g EXPANSION 2 ITEMS x", "*1 :1"),
            ("BF.INFO g EXPANSION", "*1 $-1"),
            ("CONFIG SET bf-expansion-factor 2", "+OK"),
            ("CONFIG SET bf-error-rate 0.5", "+OK"),
            ("CONFIG GET bf-error-rate", "*2 $13 bf-error-rate $4 0.25"),
        ],
    );
    for (parameter, value, text) in [
        (
            "bf-error-rate",
            "0",
            "Value for `bf-error-rate` must be in the range (0.000000, 1.000000)",
        ),
        (
            "bf-error-rate",
            "1",
            "Value for `bf-error-rate` must be in the range (0.000000, 1.000000)",
        ),
        ("bf-error-rate", "abc", "Invalid value for `bf-error-rate`"),
        (
            "bf-initial-size",
            "0",
            "Value for `bf-initial-size` must be in the range [1, 1073741824]",
        ),
        (
            "bf-initial-size",
            "1073741825",
            "Value for `bf-initial-size` must be in the range [1, 1073741824]",
        ),
        ("bf-initial-size", "abc", "Invalid value for `bf-initial-size`"),
        (
            "bf-expansion-factor",
            "32769",
            "Value for `bf-expansion-factor` must be in the range [0, 32768]",
        ),
    ] {
        let answer = client.ask(&format!("CONFIG SET {parameter} {value}"));
        assert_eq!(answer, format!("{FAILED} '{parameter}') - {text}"));
    }
    dialogue(
        &mut client,
        &[
            ("CONFIG SET cf-initial-size 4096", "+OK"),
            ("CONFIG SET cf-bucket-size 4", "+OK"),
            ("CONFIG SET cf-max-iterations 9", "+OK"),
            ("CONFIG SET cf-expansion-factor 2", "+OK"),
        ],
    );
    for (parameter, value, range) in [
        ("cf-bucket-size", "256", "[1, 255]"),
        ("cf-bucket-size", "0", "[1, 255]"),
        ("cf-initial-size", "7", "[8, 1073741824]"),
        ("cf-max-iterations", "0", "[1, 65535]"),
        ("cf-expansion-factor", "-1", "[0, 32768]"),
        ("cf-max-expansions", "0", "[1, 65536]"),
        ("cf-max-expansions", "65537", "[1, 65536]"),
    ] {
        let answer = client.ask(&format!("CONFIG SET {parameter} {value}"));
        let text = format!("Value for `{parameter}` must be in the range {range}");
        assert_eq!(answer, format!("{FAILED} '{parameter}') - {text}"));
    }
    dialogue(
        &mut client,
        &[
            ("CONFIG SET cf-max-expansions 1", "+OK"),
            ("CONFIG GET cf-max-expansions", "*2 $17 cf-max-expansions $1 1"),
            ("CONFIG SET bf-error-rate 0.01", "+OK"),
            ("CONFIG GET bf-error-rate", "*2 $13 bf-error-rate $4 0.01"),
        ],
    );
}

#[test]
fn config_set_changes_all_or_nothing() {
    let mut client = Client::new();
    dialogue(
        &mut client,
        &[
            (
                "CONFIG SET timeout 7 maxclients 0",
                &format!(
                    "{FAILED} 'maxclients') - argument must be between 1 and 4294967295 inclusive"
                ),
            ),
            ("CONFIG GET timeout", "*2 $7 timeout $1 0"),
            (
                "CONFIG SET timeout 7 nosuch 1",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
            ),
            (
                "CONFIG SET timeout 7 databases 3",
                &format!("{FAILED} 'databases') - can't set immutable config"),
            ),
            (
                "CONFIG SET timeout 7 TIMEOUT 8",
                &format!("{FAILED} 'timeout') - duplicate parameter"),
            ),
            (
                "CONFIG SET timeout abc",
                &format!("{FAILED} 'timeout') - argument couldn't be parsed into an integer"),
            ),
            (
                "CONFIG SET maxmemory lots",
                &format!("{FAILED} 'maxmemory') - argument must be a memory value"),
            ),
            ("CONFIG SET timeout 7 maxclients", "-ERR syntax error"),
            ("CONFIG SET timeout", "-ERR wrong number of arguments for 'config|set' command"),
            ("CONFIG GET timeout", "*2 $7 timeout $1 0"),
            ("CONFIG SET timeout 7 MaxMemory 100mb slowlog-max-len 0", "+OK"),
            (
                "CONFIG GET timeout maxmem*y",
                "*6 $9 maxmemory $9 104857600 \
                $16 maxmemory-policy $10 noeviction $7 timeout $1 7",
            ),
            (
                "CONFIG SET cf-bucket-size 200 cf-initial-size 399",
                &format!(
                    "{FAILED} 'cf-initial-size') - Value for `cf-initial-size` must be in the \
                     range [400, 1073741824]"
                ),
            ),
            ("CONFIG GET cf-bucket-size", "*2 $14 cf-bucket-size $1 2"),
        ],
    );
}

#[test]
fn a_limit_of_memory_that_was_set_holds() {
    let mut client = Client::new();
    assert_eq!(client.ask("CONFIG SET maxmemory 1mb"), "+OK");
    assert!(client.ask("BF.RESERVE k 0.01 10000000").starts_with("-ERR Insufficient memory"));
    assert_eq!(client.ask("CONFIG SET maxmemory 0"), "+OK");
    assert_eq!(client.ask("CONFIG GET maxmemory"), "*2 $9 maxmemory $1 0");
    assert_eq!(client.ask("BF.RESERVE k 0.01 10000000"), "+OK");
}

#[test]
fn what_tools_look_at_before_they_start_is_there() {
    let mut client = Client::new();
    dialogue(
        &mut client,
        &[
            ("CONFIG GET save", "*2 $4 save $0 "),
            ("config get appendonly databases", "*4 $10 appendonly $2 no $9 databases $2 16"),
            ("CONFIG GET port", "*2 $4 port $4 7379"),
            ("CONFIG GET nosuch*", "*0"),
            ("CONFIG SET save \"\" appendonly no", "+OK"),
            (
                "CONFIG SET appendonly yes",
                &format!("{FAILED} 'appendonly') - this server only has 'no'"),
            ),
            ("CONFIG NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP."),
            ("CONFIG", "-ERR wrong number of arguments for 'config' command"),
        ],
    );
    assert_eq!(Client::resp3().ask("CONFIG GET timeout"), "%1 $7 timeout $1 0");
}

#[test]
fn help_names_every_subcommand() {
    let mut client = Client::new();
    for container in
        inbloom_server::command_table::commands().filter(|row| !row.subcommands.is_empty())
    {
        if !container.subcommands.iter().any(|row| row.name.ends_with("|help")) {
            continue;
        }
        let help = client.ask(&format!("{} HELP", container.name));
        for row in container.subcommands {
            let word = row.name.split_once('|').expect("see documentation.rs").1.to_uppercase();
            assert!(help.contains(&format!("+{word} ")), "{}: {help}", row.name);
        }
    }
    assert!(client.ask("CONFIG HELP").starts_with(
        "*11 +CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are: \
         +GET parameter [parameter ...] +    Returns the parameters"
    ));
}

#[test]
fn info_has_the_lines_that_clients_parse() {
    let mut client = Client::new();
    assert_eq!(client.info("", "redis_version").as_deref(), Some("7.4.0"));
    assert_eq!(client.info("server", "tcp_port").as_deref(), Some("7379"));
    assert_eq!(client.info("", "loading").as_deref(), Some("0"));
    assert_eq!(client.info("replication", "role").as_deref(), Some("master"));
    assert_eq!(client.info("Replication", "loading"), None);
    assert_eq!(client.info("cpu keyspace", "role"), None);
    assert_eq!(client.info("", "cmdstat_info"), None, "not by default");
    assert!(client.info("all", "module").expect("it is there").starts_with("name=bf,ver=80800,"));
    assert_eq!(client.ask("INFO nosuch"), "$0 ");
    assert!(client.ask("INFO cluster").ends_with(" # Cluster cluster_enabled:0 "));
    assert!(Client::resp3().ask("INFO cluster").starts_with("=34 txt:# Cluster"));
}

#[test]
fn info_counts_what_happens() {
    let mut client = Client::new();
    client.ask("BF.ADD k x");
    client.ask("BF.RESERVE k 0.01 100");
    client.ask("BF.CARD k z");
    client.ask("BF.RESERVE small 0.01 100");
    assert_eq!(client.info("stats", "total_error_replies").as_deref(), Some("2"));
    assert_eq!(client.info("errorstats", "errorstat_ERR").as_deref(), Some("count=2"));
    let calls = client.info("commandstats", "cmdstat_bf.reserve").expect("it was called");
    assert!(calls.starts_with("calls=2,usec="), "{calls}");
    assert!(calls.ends_with(",rejected_calls=0,failed_calls=1"), "{calls}");
    let used: u64 = client.info("memory", "used_memory").expect("it is there").parse().unwrap();
    assert_eq!(used, client.server.keyspace.used());
    assert_eq!(
        client.info("keyspace", "db0").as_deref(),
        Some("keys=2,expires=0,avg_ttl=0,subexpiry=0")
    );
    assert_eq!(client.ask("CONFIG RESETSTAT"), "+OK");
    assert_eq!(client.info("stats", "total_error_replies").as_deref(), Some("0"));
    assert_eq!(client.info("commandstats", "cmdstat_bf.reserve"), None);
}

/// Issue 6: they were always 0.
#[test]
fn calls_that_were_refused_before_they_began_are_counted() {
    let mut client = Client::new();
    client.ask("BF.CARD");
    client.ask("BF.CARD k z");
    client.ask("BF.CARD k");
    let calls = client.info("commandstats", "cmdstat_bf.card").expect("it was called");
    assert!(calls.starts_with("calls=1,usec="), "{calls}");
    assert!(calls.ends_with(",rejected_calls=2,failed_calls=0"), "{calls}");
    // Not allowed inside, and no room left to wait: SHUTDOWN and PING.
    client.ask("MULTI");
    client.ask("SHUTDOWN");
    let large = "x".repeat(40 << 20);
    assert_eq!(client.send(&["PING", &large]), "+QUEUED");
    assert!(client.send(&["PING", &large]).contains("the limit of --max-multi"));
    client.ask("DISCARD");
    for name in ["shutdown", "ping"] {
        let calls =
            client.info("commandstats", &format!("cmdstat_{name}")).expect("it was refused");
        assert!(calls.starts_with("calls=0,usec=0,usec_per_call=0.00,rejected_calls=1"), "{calls}");
    }
    // Who has not given the password.
    client.ask("CONFIG SET requirepass hush");
    let mut stranger = Client::of(&client.server);
    assert!(stranger.ask("BF.INFO k").starts_with("-NOAUTH"));
    let calls = client.info("commandstats", "cmdstat_bf.info").expect("it was refused");
    assert!(calls.contains("rejected_calls=1"), "{calls}");
}

/// Issue 6: CONFIG RESETSTAT left them.
#[test]
fn expired_keys_are_counted_until_they_are_reset() {
    use inbloom_server::keyspace::Key;
    let mut client = Client::new();
    client.ask("BF.ADD k x");
    client.ask("PEXPIRE k 1");
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(client.ask("BF.ADD k x"), ":1", "it had expired");
    assert_eq!(client.info("stats", "expired_keys").as_deref(), Some("1"));
    client.ask("CONFIG RESETSTAT");
    assert_eq!(client.info("stats", "expired_keys").as_deref(), Some("0"));
    let key = Key { database: 0, name: b"k" };
    assert!(client.server.keyspace.get(key, 0).is_some(), "only the count was forgotten");
}

#[test]
fn every_error_and_every_command_of_a_transaction_is_counted() {
    let mut client = Client::new();
    let processed = |client: &mut Client| -> u64 {
        client.info("stats", "total_commands_processed").unwrap().parse().unwrap()
    };
    let before = processed(&mut client);
    for line in ["MULTI", "PING", "PING", "EXEC"] {
        client.ask(line);
    }
    // MULTI, PING, PING, EXEC, and the INFO before.
    assert_eq!(processed(&mut client), before + 5);
    client.ask("BF.RESERVE full 0.01 1 NONSCALING");
    client.ask("BF.ADD full x");
    assert!(client.ask("BF.MADD full y z").contains("-ERR"), "an error inside an array");
    assert_eq!(client.info("stats", "total_error_replies").as_deref(), Some("1"));
    let mut out = Vec::new();
    let progress = client.session.process(&client.server, b"*1\r\n$x\r\n", &mut out, Place::Own);
    assert_eq!(progress.next, Next::Close, "no request at all");
    let mut other = Client::of(&client.server);
    assert_eq!(other.info("stats", "total_error_replies").as_deref(), Some("2"));
}

#[test]
fn loading_is_told_while_it_lasts() {
    use inbloom_server::health::LOADING;
    let mut client = Client::new();
    client.server.health.suffer(LOADING, "1 of 2 filters are read");
    assert_eq!(client.info("persistence", "loading").as_deref(), Some("1"));
    client.server.health.recover(LOADING);
    assert_eq!(client.info("persistence", "loading").as_deref(), Some("0"));
}

#[test]
fn parameters_are_known_by_the_names_of_options_too() {
    let mut client = Client::new();
    dialogue(
        &mut client,
        &[
            ("CONFIG SET max-memory 65MiB MAX-CLIENTS 77", "+OK"),
            ("CONFIG GET maxmemory", "*2 $9 maxmemory $8 68157440"),
            ("CONFIG GET max-memory", "*2 $10 max-memory $8 68157440"),
            ("CONFIG GET maxcli*", "*2 $10 maxclients $2 77"),
        ],
    );
    let twice = client.ask("CONFIG SET max-memory 1gb maxmemory 2gb");
    assert!(twice.ends_with("duplicate parameter"), "{twice}");
    let all = client.ask("CONFIG GET *");
    assert_eq!(all.matches("68157440").count(), 1, "each is there once: {all}");
    let rewrite = client.ask("CONFIG REWRITE");
    assert!(rewrite.starts_with("-ERR CONFIG REWRITE is not offered"), "{rewrite}");
    assert!(rewrite.contains("SIGHUP"), "{rewrite}");
}

#[test]
fn keys_that_expire_are_counted_or_inferred() {
    use inbloom_server::keyspace::Key;
    let mut client = Client::new();
    let (keys, now) = (20_000u64, inbloom_server::clock::now());
    for number in 0..keys {
        let name = format!("key{number}");
        assert_eq!(client.ask(&format!("BF.RESERVE {name} 0.01 10")), "+OK");
        if number % 4 == 0 {
            let key = Key { database: 0, name: name.as_bytes() };
            let entry = client.server.keyspace.get(key, now).expect("it was made");
            client.server.keyspace.expire(key, &entry, Some(now + 1_000_000));
        }
    }
    let line = client.info("keyspace", "db0").expect("there are keys");
    let field = |name: &str| -> u64 {
        let rest = line.split_once(&format!("{name}=")).expect("the field is there").1;
        rest.split(',').next().expect("a number").parse().expect("a number")
    };
    assert_eq!(field("keys"), keys);
    // A quarter of 4,096 names or more: the deviation is sqrt(0.25 * 0.75 / 4096) = 0.7%; five of
    // it.
    assert!(field("expires").abs_diff(keys / 4) < keys * 34 / 1000, "{line}");
    assert!((900_000..=1_000_000).contains(&field("avg_ttl")), "{line}");
}

#[test]
fn command_tells_the_table() {
    let mut client = Client::resp3();
    dialogue(
        &mut client,
        &[
            (
                "COMMAND INFO config|get nosuch",
                "*2 *10 $10 config|get :-3 ~4 +admin +noscript +loading +stale :0 :0 :0 \
                 ~3 +@admin +@dangerous +@slow ~0 ~0 ~0 _",
            ),
            (
                "COMMAND INFO BF.EXISTS",
                "*1 *10 $9 bf.exists :3 ~3 +readonly +fast +module :1 :1 :1 \
                 ~3 +@bloom +@read +@fast ~0 ~1 %3 $5 flags ~2 +RO +access \
                 $12 begin_search %2 $4 type $5 index $4 spec %1 $5 index :1 \
                 $9 find_keys %2 $4 type $5 range $4 spec %3 $7 lastkey :0 $7 keystep :1 \
                 $5 limit :0 ~0",
            ),
            ("COMMAND GETKEYS bf.add code 42", "*1 $4 code"),
            ("COMMAND GETKEYS memory usage code", "*1 $4 code"),
            ("COMMAND GETKEYSANDFLAGS bf.add code 42", "*1 *2 $4 code ~3 +RW +access +update"),
            (
                "COMMAND GETKEYS bf.add code",
                "-ERR Invalid number of arguments specified for command",
            ),
            ("COMMAND GETKEYS time", "-ERR The command has no key arguments"),
            ("COMMAND GETKEYS nosuch x", "-ERR Invalid command specified"),
            ("COMMAND GETKEYS config nosuch", "-ERR Invalid command specified"),
            ("COMMAND LIST FILTERBY PATTERN slow*g", "*1 $7 slowlog"),
            ("COMMAND LIST FILTERBY PATTERN TIM?", "*1 $4 time"),
            ("COMMAND LIST FILTERBY MODULE nosuch", "*0"),
            ("COMMAND LIST FILTERBY nosuch x", "-ERR syntax error"),
            ("COMMAND LIST nosuch", "-ERR syntax error"),
            ("COMMAND DOCS nosuch", "%0"),
            ("COMMAND COUNT x", "-ERR wrong number of arguments for 'command|count' command"),
        ],
    );
    let count = inbloom_server::command_table::commands().count();
    assert_eq!(client.ask("COMMAND COUNT"), format!(":{count}"));
    assert!(client.ask("COMMAND").starts_with(&format!("*{count} *10 ")));
    assert_eq!(client.ask("COMMAND"), client.ask("COMMAND INFO"));
    assert!(client.ask("COMMAND LIST FILTERBY MODULE bf").contains(" $7 bf.madd "));
    let admin = client.ask("COMMAND LIST FILTERBY ACLCAT admin");
    assert!(admin.contains(" config|set") && !admin.contains("bf.add"), "{admin}");
    let containers = client.ask("COMMAND INFO config");
    assert!(containers.contains(" *5 *10 $10 config|get :-3 "), "{containers}");
}

#[test]
fn command_docs_tell_arguments_one_by_one() {
    let mut client = Client::resp3();
    let docs = client.ask("COMMAND DOCS bf.insert");
    assert!(docs.starts_with("%1 $9 bf.insert %6 $7 summary "), "{docs}");
    for part in [
        "$5 group $6 module $10 complexity ",
        "$6 module $2 bf ",
        "$9 arguments *7 %4 $4 name $3 key $4 type $3 key $12 display_text $3 key \
         $14 key_spec_index :0 ",
        "%5 $4 name $8 capacity $4 type $7 integer $12 display_text $8 capacity \
         $5 token $8 CAPACITY $5 flags ~1 +optional ",
        "%4 $4 name $8 nocreate $4 type $10 pure-token $5 token $8 NOCREATE $5 flags ~1 +optional ",
        "%5 $4 name $4 item $4 type $6 string $12 display_text $4 item $5 token $5 ITEMS \
         $5 flags ~1 +multiple",
    ] {
        assert!(docs.contains(part), "{part} in {docs}");
    }
    let docs = client.ask("COMMAND DOCS Config");
    assert!(docs.contains("$11 subcommands %5 $10 config|get %5 "), "{docs}");
    assert!(docs.contains("$4 name $9 parameter $4 type $5 block $5 flags ~1 +multiple"), "{docs}");
    assert_eq!(client.ask("COMMAND DOCS config|get").matches("config|get").count(), 1);
    let all = client.ask("COMMAND DOCS");
    assert!(all.starts_with(&format!("%{} ", inbloom_server::command_table::commands().count())));
}

#[test]
fn memory_usage_is_that_of_the_key() {
    let mut client = Client::new();
    client.ask("BF.RESERVE k 0.01 100000");
    let used = client.server.keyspace.used();
    dialogue(
        &mut client,
        &[
            ("MEMORY USAGE k", &format!(":{used}")),
            ("MEMORY USAGE k SAMPLES 5", &format!(":{used}")),
            ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error"),
            ("MEMORY USAGE k SAMPLES x", "-ERR value is not an integer or out of range"),
            ("MEMORY USAGE k NOSUCH 1", "-ERR syntax error"),
            ("MEMORY USAGE k SAMPLES", "-ERR syntax error"),
            ("MEMORY USAGE nosuch", "$-1"),
        ],
    );
    let stats = client.ask("MEMORY STATS");
    assert!(stats.contains(&format!("$15 total.allocated :{used} $10 keys.count :1 ")), "{stats}");
    assert!(client.ask("MEMORY DOCTOR").contains("There is room for more."));
    assert_eq!(client.ask("CONFIG SET maxmemory 1k"), "+OK");
    assert!(client.ask("MEMORY DOCTOR").contains(" are refused."));
}

#[test]
fn slow_commands_are_remembered() {
    let mut client = Client::new();
    assert_eq!(client.ask("SLOWLOG LEN"), ":0");
    assert_eq!(client.ask("DEBUG SLEEP 0.02"), "+OK");
    assert_eq!(client.ask("SLOWLOG LEN"), ":1");
    let log = client.ask("SLOWLOG GET");
    assert!(log.starts_with("*1 *6 :0 :"), "{log}");
    assert!(log.ends_with(" *3 $5 DEBUG $5 SLEEP $4 0.02 $13 10.0.0.7:5000 $0 "), "{log:?}");
    dialogue(
        &mut client,
        &[
            ("SLOWLOG GET 0", "*0"),
            ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1"),
            ("SLOWLOG GET x", "-ERR count should be greater than or equal to -1"),
            ("SLOWLOG GET 1 2", "-ERR wrong number of arguments for 'slowlog|get' command"),
            ("SLOWLOG RESET", "+OK"),
            ("SLOWLOG GET -1", "*0"),
        ],
    );
}

#[test]
fn sleeping_is_not_done_where_others_wait() {
    let mut client = Client::new();
    let input = b"*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$1\r\n0\r\n";
    let mut out = Vec::new();
    let progress = client.session.process(&client.server, input, &mut out, Place::Shared);
    assert_eq!((progress.consumed, progress.next), (0, Next::Work));
    let refused = "-ERR seconds must be a number from 0 to 60";
    for seconds in ["61", "-1", "inf", "abc"] {
        assert_eq!(client.ask(&format!("DEBUG SLEEP {seconds}")), refused);
    }
}

#[test]
fn what_is_not_there_is_said_and_never_pretended() {
    let mut client = Client::new();
    for command in ["SAVE", "BGSAVE", "BGREWRITEAOF", "SHUTDOWN SAVE"] {
        let answer = client.ask(command);
        assert!(answer.starts_with("-ERR the server keeps filters in memory only"), "{answer}");
        assert!(answer.contains("IB.SAVE"), "{answer}");
    }
    assert!(!client.server.is_stopping());
    dialogue(
        &mut client,
        &[
            ("REPLICAOF NO ONE", "+OK"),
            ("slaveof no one", "+OK"),
            ("WAIT 1 0", ":0"),
            ("WAIT x 0", "-ERR value is not an integer or out of range"),
            ("WAIT 0 -1", "-ERR timeout is negative"),
            ("WAITAOF 0 0 0", "*2 :0 :0"),
            (
                "WAITAOF 1 0 0",
                "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
            ),
            ("ROLE", "*3 $6 master :0 *0"),
            ("LATENCY LATEST", "*0"),
            ("LATENCY HISTORY command", "*0"),
            ("LATENCY HISTOGRAM", "*0"),
            ("LATENCY RESET", ":0"),
            ("MODULE LIST", "*1 *8 $4 name $2 bf $3 ver :80800 $4 path $0  $4 args *0"),
        ],
    );
    assert!(client.ask("REPLICAOF 127.0.0.1 6379").starts_with("-ERR replication is not offered"));
}

#[test]
fn the_only_user_may_do_all() {
    let mut client = Client::resp3();
    dialogue(
        &mut client,
        &[
            ("ACL WHOAMI", "$7 default"),
            ("ACL USERS", "*1 $7 default"),
            ("ACL LIST", "*1 $34 user default on nopass ~* &* +@all"),
            ("ACL GETUSER nosuch", "_"),
            (
                "ACL GETUSER default",
                "%6 $5 flags ~2 $2 on $6 nopass $9 passwords *0 $8 commands $5 +@all \
                 $4 keys $2 ~* $8 channels $2 &* $9 selectors *0",
            ),
            ("ACL CAT nosuch", "-ERR Unknown category 'nosuch'"),
            ("CONFIG SET requirepass secret", "+OK"),
            ("ACL LIST", "*1 $27 user default on ~* &* +@all"),
        ],
    );
    assert!(client.ask("ACL CAT").contains("$5 bloom"));
    assert!(client.ask("ACL CAT bloom").contains("$6 bf.add"));
}

#[test]
fn time_passes_and_the_start_is_the_last_save() {
    let mut client = Client::new();
    let before = inbloom_server::clock::now() / 1000;
    let answer = client.ask("TIME");
    let seconds: u64 = answer.split(' ').nth(2).expect("a number").parse().expect("a number");
    assert!((before..=before + 60).contains(&seconds), "{answer}");
    let start: u64 = client.ask("LASTSAVE")[1..].parse().expect("a number");
    assert!((before - 60..=before + 60).contains(&start));
}

#[test]
fn shutdown_ends_the_connection_without_a_reply() {
    let mut client = Client::new();
    dialogue(
        &mut client,
        &[
            ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
            ("SHUTDOWN NOSAVE ABORT", "-ERR syntax error"),
            ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
            ("SHUTDOWN NOSUCH", "-ERR syntax error"),
        ],
    );
    assert!(!client.server.is_stopping());
    assert_eq!(client.ask("SHUTDOWN NOSAVE NOW"), "");
    assert!(client.server.is_stopping());
    let mut other = Client::of(&client.server);
    assert!(other.ask("SHUTDOWN ABORT").contains("cannot be aborted"));
    let mut out = Vec::new();
    let progress = client.session.process(&client.server, b"TIME\r\n", &mut out, Place::Own);
    assert_eq!((progress.next, out.len()), (Next::Close, 0));
}

#[test]
fn info_has_the_fields_that_dashboards_read() {
    let mut client = Client::new();
    assert_eq!(client.ask("BF.RESERVE f 0.01 1000000"), "+OK");
    let number = |client: &mut Client, section: &str, field: &str| -> f64 {
        let value = client.info(section, field).unwrap_or_else(|| panic!("no {field}"));
        value.parse().unwrap_or_else(|_| panic!("{field}:{value}"))
    };
    let used = number(&mut client, "memory", "used_memory");
    assert!(used > 1e6);
    assert_eq!(client.ask("DEL f"), ":1");
    let peak = number(&mut client, "memory", "used_memory_peak");
    assert!(peak >= used && number(&mut client, "memory", "used_memory") < used);
    let shown = client.info("memory", "used_memory_peak_human").unwrap();
    assert!(shown.ends_with('M'), "{shown}");
    assert!(number(&mut client, "memory", "mem_fragmentation_ratio") > 1.0);
    for (section, field) in [
        ("stats", "instantaneous_ops_per_sec"),
        ("stats", "instantaneous_input_kbps"),
        ("stats", "instantaneous_output_kbps"),
        ("stats", "latest_fork_usec"),
        ("stats", "pubsub_channels"),
        ("stats", "pubsub_patterns"),
        ("replication", "master_repl_offset"),
    ] {
        assert_eq!(number(&mut client, section, field), 0.0, "{field}");
    }
    // Nothing can be saved without a folder.
    assert_eq!(client.info("persistence", "rdb_changes_since_last_save"), None);
}

#[test]
fn a_filter_takes_what_the_planner_says_for_its_base() {
    let mut client = Client::new();
    let planned = |rate: f64| {
        let plan = inbloom::Plan::builder(inbloom::Kind::Blocked).items(50_000_000).rate(rate);
        plan.build().unwrap().bytes()
    };
    for (name, options, rate) in [("fixed", " NONSCALING", 0.001), ("grows", "", 0.0005)] {
        let line = format!("BF.RESERVE {name} 0.001 50000000{options}");
        assert_eq!(client.ask(&line), "+OK");
        let size = client.ask(&format!("BF.INFO {name} SIZE"));
        assert_eq!(size, format!("*1 :{}", planned(rate)), "{name}");
    }
    // As docs/operations.md says.
    let more = planned(0.0005) as f64 / planned(0.001) as f64;
    assert_eq!(format!("{:.0}%", (more - 1.0) * 100.0), "12%");
    let document = include_str!("../../../../docs/operations.md");
    for bytes in [planned(0.001), planned(0.0005)] {
        let digits = bytes.to_string();
        let (millions, rest) = digits.split_at(digits.len() - 6);
        let grouped = format!("{millions},{},{}", &rest[..3], &rest[3..]);
        assert!(document.contains(&grouped), "{grouped}");
    }
}
