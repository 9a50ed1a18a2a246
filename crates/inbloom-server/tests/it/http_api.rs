//! The JSON API and the page, as bytes on a socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inbloom_server::filter_store::StoredFilters;
use inbloom_server::http::page::FILES;
use inbloom_server::{Config, HttpAccess, Users};
use serde_json::{Value, json};

use crate::sockets::{Client, Running, request};
use crate::store::double::Double;

/// A server with both ports.
struct Both {
    running: Running,
    http: SocketAddr,
}

impl Both {
    fn start(config: Config) -> Both {
        let running = Running::start(Config { threads: 1, ..config });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let http = listener.local_addr().unwrap();
        inbloom_server::http::start(listener, &running.server).unwrap();
        Both { running, http }
    }

    /// One where `writer` may add keys, `reader` may look, and `default` may do nothing.
    fn with_users(can_write: bool) -> Both {
        let file = tempfile::NamedTempFile::new().unwrap();
        let users = "writer read-write password:w:rite\nreader read-only password:read\n\
                     boss admin password:boss\nopen admin nopass\n";
        std::fs::write(file.path(), users).unwrap();
        let users = Users::load(file.path()).unwrap();
        let http = HttpAccess { can_write, hosts: vec!["filters.example".into()] };
        Both::start(Config { users, http, ..Config::default() })
    }

    fn send(&self, request: &str) -> Reply {
        Reply::of(self.http, request)
    }

    /// A GET of a client that is no browser.
    fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    fn get_as(&self, user: &str, path: &str) -> Reply {
        let authorization = format!("Authorization: Basic {user}\r\n");
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n"))
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Reply {
        let length = body.len();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        ))
    }
}

const WRITER: &str = "d3JpdGVyOnc6cml0ZQ==";
const READER: &str = "cmVhZGVyOnJlYWQ=";
const BOSS: &str = "Ym9zczpib3Nz";
const OPEN: &str = "b3BlbjphbnkgdGhpbmc=";

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn of(address: SocketAddr, request: &str) -> Reply {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        let reply = String::from_utf8(reply).expect("everything is UTF-8");
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    #[track_caller]
    fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.json()
    }

    /// The status and the code of an error.
    #[track_caller]
    fn error(&self) -> (u16, String) {
        let code = self.json()["error"]["code"].as_str().unwrap_or("none").to_owned();
        (self.status, code)
    }
}

fn call(client: &mut Client, words: &[&[u8]]) {
    client.stream.write_all(&request(words)).unwrap();
    client.read();
}

/// Hosts, origins and forged writes, and what each is answered.
#[test]
fn requests_of_other_sites_are_refused() {
    let both = Both::with_users(true);
    let mut client = both.running.connect();
    client.call("AUTH boss boss");
    client.call("BF.ADD seen x");
    let user = format!("Authorization: Basic {WRITER}\r\n");
    let own = "X-Inbloom: 1\r\nContent-Type: application/json\r\n";
    let host = |host: &str| format!("Host: {host}\r\n");
    let local = host("localhost");
    let get = |path: &str, headers: String| format!("GET {path} HTTP/1.1\r\n{user}{headers}\r\n");
    let post = |headers: String| {
        let body = r#"{"key":"forged"}"#;
        let length = format!("Content-Length: {}\r\n", body.len());
        format!("POST /api/filters/seen/add HTTP/1.1\r\n{user}{headers}{length}\r\n{body}")
    };
    for (request, status, code) in [
        // DNS rebinding: the name of another site leads here.
        (get("/api/filters", host("evil.example")), 421, "host"),
        (get("/api/filters", host("evil.example:7380")), 421, "host"),
        (get("/api/filters", host("localhost.evil.example")), 421, "host"),
        (get("/api/filters", host("127.0.0.1.evil.example")), 421, "host"),
        (get("/", host("evil.example")), 421, "host"),
        (get("http://evil.example/api/filters", local.clone()), 421, "host"),
        (get("/api/filters", String::new()), 400, "bad_request"),
        (get("/api/filters", format!("{local}{local}")), 400, "bad_request"),
        // Pages of other sites that ask from within a browser.
        (get("/api/filters", format!("{local}Origin: http://evil.example\r\n")), 403, "cross_site"),
        (get("/api/filters", format!("{local}Origin: null\r\n")), 403, "cross_site"),
        (get("/api/filters", format!("{local}Origin: http://localhost:81\r\n")), 403, "cross_site"),
        (get("/api/filters", format!("{local}Sec-Fetch-Site: cross-site\r\n")), 403, "cross_site"),
        (get("/api/filters", format!("{local}Sec-Fetch-Site: same-site\r\n")), 403, "cross_site"),
        // Forged writes: what a form can send, and what a script can send without asking first.
        (post(local.clone()), 403, "missing_header"),
        (post(format!("{local}Content-Type: text/plain\r\n")), 403, "missing_header"),
        (post(format!("{local}X-Inbloom: 1\r\nContent-Type: text/plain\r\n")), 400, "bad_request"),
        (post(format!("{local}{own}Origin: http://evil.example\r\n")), 403, "cross_site"),
        (post(format!("{local}{own}Sec-Fetch-Site: cross-site\r\n")), 403, "cross_site"),
        (post(format!("{}{own}", host("evil.example"))), 421, "host"),
    ] {
        let reply = both.send(&request);
        assert_eq!(reply.error(), (status, code.to_owned()), "{request}");
        assert!(!reply.head.contains("access-control"), "{}", reply.head);
    }
    assert_eq!(client.call("BF.EXISTS seen forged").integer(), 0);
    // A browser that asks whether it may is not told that it may.
    let reply = both.send(&format!(
        "OPTIONS /api/filters/seen/add HTTP/1.1\r\n{local}Origin: http://localhost\r\n\
         Access-Control-Request-Method: POST\r\n\r\n"
    ));
    assert!(reply.status == 405 && !reply.head.contains("access-control"), "{}", reply.head);

    for request in [
        get("/api/filters", local.clone()),
        get("/api/filters", host("127.0.0.1:7380")),
        get("/api/filters", host("[::1]:7380")),
        get("/api/filters", host("Filters.Example")),
        get("/api/filters", format!("{local}Origin: http://localhost\r\n")),
        get("/api/filters", format!("{local}Sec-Fetch-Site: same-origin\r\n")),
        get("/api/filters", format!("{local}Sec-Fetch-Site: none\r\n")),
        get("/", format!("{local}Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n")),
        // Monitors come by any name, as before.
        get("/metrics", host("inbloom.monitoring")),
        get("/healthz", host("inbloom.monitoring")),
        post(format!("{local}{own}Origin: http://localhost\r\n")),
    ] {
        assert_eq!(both.send(&request).status, 200, "{request}");
    }
    assert_eq!(client.call("BF.EXISTS seen forged").integer(), 1);
}

#[test]
fn every_answer_forbids_frames_scripts_and_guessing() {
    let both = Both::start(Config::default());
    for path in ["/", "/nothing", "/api/filters", "/api/filters/none", "/api/plan?items=x"] {
        let reply = both.get(path);
        let policy = reply.header("content-security-policy").expect("a policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "deny"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{path}");
        }
        let cached = if path == "/" { "no-cache" } else { "no-store" };
        assert_eq!(reply.header("cache-control"), Some(cached), "{path}");
        assert_eq!(reply.header("content-type").unwrap() == "application/json", path != "/");
    }
}

#[test]
fn users_and_roles_are_those_of_the_other_port() {
    let both = Both::with_users(true);
    let mut client = both.running.connect();
    client.call("AUTH boss boss");
    client.call("BF.ADD seen x");
    let nobody = both.get("/api/filters");
    assert_eq!(nobody.error(), (401, "login".into()));
    assert!(nobody.header("www-authenticate").unwrap().starts_with("basic"));
    // Our own page asks for the password itself.
    let own = both.send("GET /api/filters HTTP/1.1\r\nHost: localhost\r\nX-Inbloom: 1\r\n\r\n");
    assert!(own.header("www-authenticate").unwrap().starts_with("inbloom"));
    for wrong in ["cmVhZGVyOndyb25n", "bm9ib2R5OnJlYWQ=", "cmVhZGVyOg=="] {
        assert_eq!(both.get_as(wrong, "/api/filters").error(), (401, "login".into()));
    }
    assert_eq!(both.get_as("!", "/api/filters").error(), (400, "bad_request".into()));
    let failed = &both.running.server.statistics.failed_logins;
    assert_eq!(failed.load(std::sync::atomic::Ordering::Relaxed), 3);

    let session = |reply: Reply| {
        let session = reply.ok();
        (session["user"].clone(), session["role"].clone(), session["write"].clone())
    };
    assert_eq!(session(both.get("/api/session")), (Value::Null, Value::Null, json!(false)));
    let reader = session(both.get_as(READER, "/api/session"));
    assert_eq!(reader, (json!("reader"), json!("read-only"), json!(false)));
    let writer = session(both.get_as(WRITER, "/api/session"));
    assert_eq!(writer, (json!("writer"), json!("read-write"), json!(true)));

    // What CLIENT LIST and SLOWLOG GET tell is for admins.
    for (user, is_admin) in [(READER, false), (WRITER, false), (BOSS, true)] {
        let health = both.get_as(user, "/api/health").ok();
        assert_eq!(health["clients"]["list"].is_array(), is_admin);
        assert_eq!(health["slow_log"].is_array(), is_admin);
    }
    let add = |user: &str, key: &str| {
        let headers = format!(
            "Authorization: Basic {user}\r\nX-Inbloom: 1\r\nContent-Type: application/json\r\n"
        );
        both.post("/api/filters/seen/add", &headers, &json!({ "key": key }).to_string())
    };
    assert_eq!(add(READER, "a").error(), (403, "forbidden".into()));
    assert_eq!(add(OPEN, "a").error(), (403, "needs_login".into()), "any password was right");
    assert_eq!(add(WRITER, "a").ok(), json!({ "new": true, "keys": 2 }));
    assert_eq!(add(WRITER, "a").ok(), json!({ "new": false, "keys": 2 }));
    assert_eq!(client.call("BF.EXISTS seen a").integer(), 1);
    let anonymous = "X-Inbloom: 1\r\nContent-Type: application/json\r\n";
    let reply = both.post("/api/filters/seen/add", anonymous, r#"{"key":"b"}"#);
    assert_eq!(reply.error(), (403, "needs_login".into()));
    let headers = format!("Authorization: Basic {WRITER}\r\n{anonymous}");
    for (body, status) in [
        ("", 400),
        ("[]", 400),
        ("{}", 400),
        (r#"{"key":1}"#, 400),
        (r#"{"key":"a","key_base64":"YQ=="}"#, 400),
        (r#"{"key_base64":"!"}"#, 400),
        (r#"{"key_base64":"//8="}"#, 200),
    ] {
        assert_eq!(both.post("/api/filters/seen/add", &headers, body).status, status, "{body}");
    }
    let long = json!({ "key": "k".repeat(20_000) }).to_string();
    assert_eq!(both.post("/api/filters/seen/add", &headers, &long).status, 413);
    let longer = json!({ "key": "k".repeat(100_000) }).to_string();
    assert_eq!(both.post("/api/filters/seen/add", &headers, &longer).status, 413);
    assert_eq!(both.post("/api/filters/none/add", &headers, r#"{"key":"a"}"#).status, 404);
}

#[test]
fn nothing_is_written_unless_the_server_allows_it() {
    let headers = format!(
        "Authorization: Basic {WRITER}\r\nX-Inbloom: 1\r\nContent-Type: application/json\r\n"
    );
    let both = Both::with_users(false);
    let reply = both.post("/api/filters/seen/add", &headers, r#"{"key":"a"}"#);
    assert_eq!(reply.error(), (403, "read_only".into()));
    // A server without passwords takes no writes over HTTP, whatever it is told.
    let http = HttpAccess { can_write: true, hosts: Vec::new() };
    let both = Both::start(Config { http, ..Config::default() });
    both.running.connect().call("BF.ADD seen x");
    let reply = both.post("/api/filters/seen/add", &headers, r#"{"key":"a"}"#);
    assert_eq!(reply.error(), (401, "login".into()), "there is no such user");
    let default = headers.replace(WRITER, "ZGVmYXVsdDphbnk=");
    let reply = both.post("/api/filters/seen/add", &default, r#"{"key":"a"}"#);
    assert_eq!(reply.error(), (403, "needs_login".into()));
    assert_eq!(both.get("/api/session").ok()["write"], false);
}

/// Names that are hostile to HTML, to addresses, to JSON, to shells and to text.
#[test]
fn any_name_is_listed_found_and_told_apart() {
    let both = Both::start(Config::default());
    let mut client = both.running.connect();
    let names: Vec<Vec<u8>> = [
        &b"<img src=x onerror=alert(1)>"[..],
        b"</script><script>alert(1)</script>",
        b"javascript:alert(1)",
        b"\"'`{{7*7}}${7*7}",
        b"..",
        b".",
        b"",
        b"../../etc/passwd",
        b"a/b/test",
        b"a%2fb",
        b"=Li4",
        b"a?b=c#d&e",
        b"a b+c",
        b"\xff\xfe\x00\x01",
        b"line\r\nSet-Cookie: x=1",
        b"\xe2\x80\xae\xe4\xb8\xad\xe6\x96\x87",
        b"\xc3\x28",
        b"test",
        b"history",
    ]
    .map(<[u8]>::to_vec)
    .into();
    for (number, name) in names.iter().enumerate() {
        for item in 0..=number {
            call(&mut client, &[b"BF.ADD", name, item.to_string().as_bytes()]);
        }
    }
    let list = both.get("/api/filters").ok();
    assert_eq!(list["found"], names.len());
    assert_eq!(list["filters"].as_array().unwrap().len(), names.len());
    for row in list["filters"].as_array().unwrap() {
        let path = row["path"].as_str().unwrap();
        assert!(path.bytes().all(|it| it.is_ascii_graphic()), "{path}");
        let one = both.get(&format!("/api/filters/{path}")).ok();
        assert_eq!(one["name_base64"], row["name_base64"]);
        assert_eq!(one["keys"], row["keys"], "{path}: another filter");
    }
    let keys = |path: &str| both.get(&format!("/api/filters/{path}")).ok()["keys"].clone();
    assert_eq!(keys("%3Cimg%20src=x%20onerror=alert(1)%3E"), 1);
    assert_eq!((keys("=Li4"), keys("")), (json!(5), json!(7)));
    assert_eq!((keys("a%2Fb%2Ftest"), keys("%3DLi4")), (json!(9), json!(11)));
    let shown = both.get("/api/filters/%FF%FE%00%01").ok()["name"].clone();
    assert_eq!(shown, "\\xff\\xfe\u{0}\u{1}");
    for wrong in ["%", "%4", "%zz", "=!", "=Z"] {
        assert_eq!(both.get(&format!("/api/filters/{wrong}")).status, 400, "{wrong}");
    }
    assert_eq!(both.get("/api/filters/none").error(), (404, "not_found".into()));
    assert_eq!(both.get("/api/filters/test?db=1").error(), (404, "not_found".into()));
    assert_eq!(both.get("/api/filters/test?db=16").error(), (400, "bad_value".into()));
    let long = "x".repeat(70_000);
    assert_eq!(both.get(&format!("/api/filters/{long}")).status, 414);
}

#[test]
fn the_list_is_searched_sorted_and_cut() {
    let both = Both::start(Config::default());
    let mut client = both.running.connect();
    for number in 0..25 {
        client.call(&format!("BF.RESERVE user:{number:02} 0.01 {}", 100 * (number % 5 + 1)));
        for item in 0..number {
            client.call(&format!("BF.ADD user:{number:02} {item}"));
        }
    }
    client.call("CF.ADD cuckoo x");
    client.call("BF.RESERVE Classic 0.001 1000 KIND classic");
    client.call("SELECT 3");
    client.call("BF.ADD elsewhere x");
    let names = |query: &str| -> Vec<String> {
        let list = both.get(&format!("/api/filters{query}")).ok();
        let name = |row: &Value| row["name"].as_str().unwrap().to_owned();
        list["filters"].as_array().unwrap().iter().map(name).collect()
    };
    assert_eq!(names("").len(), 27);
    assert_eq!(names("?limit=3"), ["Classic", "cuckoo", "user:00"]);
    assert_eq!(names("?limit=2&order=desc"), ["user:24", "user:23"]);
    assert_eq!(names("?q=USER:1&limit=2&offset=8"), ["user:18", "user:19"]);
    assert_eq!(names("?q=clas"), ["Classic"]);
    assert_eq!(names("?kind=redisbloom-cuckoo"), ["cuckoo"]);
    assert_eq!(names("?sort=keys&limit=2"), ["user:24", "user:23"]);
    assert_eq!(names("?sort=keys&order=asc&limit=2&q=user"), ["user:00", "user:01"]);
    assert_eq!(names("?sort=used&q=user&limit=1"), ["user:20"]);
    assert_eq!(names("?db=3"), ["elsewhere"]);
    let page = both.get("/api/filters?limit=10&offset=20").ok();
    assert_eq!((&page["total"], &page["next"]), (&json!(27), &Value::Null));
    assert_eq!(both.get("/api/filters?limit=10").ok()["next"], 10);
    let databases = json!([{ "database": 0, "filters": 27 }, { "database": 3, "filters": 1 }]);
    assert_eq!(page["databases"], databases);
    for wrong in ["?sort=rate", "?limit=0", "?limit=1001", "?order=up", "?qq=x", "?q=a&q=b"] {
        assert_eq!(both.get(&format!("/api/filters{wrong}")).status, 400, "{wrong}");
    }
}

#[test]
fn a_filter_shows_what_it_has_and_does() {
    let both = Both::start(Config::default());
    let mut client = both.running.connect();
    client.call("BF.RESERVE seen 0.01 1000 NONSCALING");
    let first = both.get("/api/filters/seen").ok();
    assert_eq!((&first["keys"], &first["advice"][0]["code"]), (&json!(0), &json!("healthy")));
    for item in 0..950 {
        client.call(&format!("BF.ADD seen {item}"));
    }
    for item in 900..1000 {
        client.call(&format!("BF.EXISTS seen {item}"));
    }
    // Scans of small filters are made again after half a second.
    let begin = Instant::now();
    let shown = loop {
        let shown = both.get("/api/filters/seen").ok();
        let is_new = shown["fill"].as_f64().unwrap() > 0.0 && shown["per_second"]["added"] != 0.0;
        if is_new {
            break shown;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{shown}");
        std::thread::sleep(Duration::from_millis(100));
    };
    for (field, value) in [
        ("kind", json!("blocked")),
        ("capacity", json!(1000)),
        ("target_rate", json!(0.01)),
        ("grows", json!(false)),
        ("hash", json!("xxh3-128")),
        ("writable", json!(false)),
        ("generations", Value::Null),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    let counters = &shown["counters"];
    let count = |name: &str| counters[name].as_u64().unwrap();
    assert_eq!((count("added"), count("asked")), (950, 100));
    // Some new keys are taken for known ones, at the rate.
    assert!((930..=950).contains(&count("new")) && shown["keys"] == count("new"), "{shown}");
    assert!((50..60).contains(&count("hits")), "{counters}");
    assert!((0.004..0.0105).contains(&shown["rate"].as_f64().unwrap()), "{}", shown["rate"]);
    assert!((shown["estimated_keys"].as_f64().unwrap() - 950.0).abs() < 60.0);
    assert_eq!(shown["layers"].as_array().unwrap().len(), 1);
    assert!(!shown["strip"]["fill"].as_array().unwrap().is_empty());
    assert_eq!(shown["strip"]["stands_out"], json!([]));
    let codes: Vec<&str> =
        shown["advice"].as_array().unwrap().iter().map(|it| it["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"nearly_full") || codes.contains(&"full_soon"), "{codes:?}");
    assert!(shown["advice"][0]["reserve_bytes"].as_u64().unwrap() > 2000);

    let history = both.get("/api/filters/seen/history").ok();
    let sum = |name: &str| -> u64 {
        history[name].as_array().unwrap().iter().filter_map(Value::as_u64).sum()
    };
    assert_eq!((sum("added"), sum("asked")), (950, 100), "{history}");
    let next = &history["next"];
    let later = both.get(&format!("/api/filters/seen/history?since={next}")).ok();
    assert!(later["keys"].as_array().unwrap().len() < 5);
    let day = both.get("/api/filters/seen/history?span=24h").ok();
    assert_eq!((&day["step_seconds"], &day["span"]), (&json!(60), &json!("24h")));
    assert_eq!(both.get("/api/filters/seen/history?span=1y").status, 400);

    let found = both.get("/api/filters/seen/test?key=17").ok();
    assert_eq!((&found["present"], &found["certain"]), (&json!(true), &json!(false)));
    let positions = found["positions"].as_array().unwrap();
    assert!(positions.len() >= 4 && positions.iter().all(|it| it["set"] == true), "{found}");
    let absent = both.get("/api/filters/seen/test?key_base64=bm90IHRoZXJl").ok();
    assert_eq!((&absent["present"], &absent["certain"]), (&json!(false), &json!(true)));
    assert!(absent["positions"].as_array().unwrap().iter().any(|it| it["set"] == false));
    for wrong in ["", "?key_base64=!", "?key=a&key_base64=YQ=="] {
        assert_eq!(both.get(&format!("/api/filters/seen/test{wrong}")).status, 400, "{wrong}");
    }
    // Looking does not count as asking.
    assert_eq!(both.get("/api/filters/seen").ok()["counters"]["asked"], 100);
}

#[test]
fn a_list_watches_its_first_filters_if_it_is_asked_to() {
    let both = Both::start(Config::default());
    let mut client = both.running.connect();
    for number in 0..40 {
        client.call(&format!("BF.ADD f{number:02} x"));
    }
    let list = |query: &str| both.get(&format!("/api/filters?{query}")).ok()["filters"].clone();
    assert_eq!(list("limit=1")[0]["per_second"], Value::Null);
    let watched = list("watch=1");
    let watched = watched.as_array().unwrap().iter().map(|row| row["per_second"].is_object());
    assert_eq!(watched.filter(|it| *it).count(), 32, "half of what can be watched");
    client.call("BF.MEXISTS f00 x y");
    let begin = Instant::now();
    loop {
        let speed = &list("limit=1&watch=1")[0]["per_second"];
        if speed["asked"].as_f64() > Some(0.0) {
            assert_eq!(speed["hit_share"], 0.5, "{speed}");
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{speed}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(both.get("/api/filters?watch=yes").error(), (400, "bad_value".into()));
}

#[test]
fn every_kind_of_value_can_be_shown() {
    let both = Both::start(Config::default());
    let mut client = both.running.connect();
    for (name, reserve, add) in [
        ("blocked", "BF.RESERVE blocked 0.01 100", "BF.ADD blocked"),
        ("classic", "BF.RESERVE classic 0.01 100 KIND classic", "BF.ADD classic"),
        ("counting", "BF.RESERVE counting 0.01 100 KIND counting", "BF.ADD counting"),
        ("cuckoo", "BF.RESERVE cuckoo 0.01 100 KIND cuckoo", "BF.ADD cuckoo"),
        ("window", "BF.RESERVE window 0.01 100 WINDOW 1h", "BF.ADD window"),
        ("redisbloom", "BF.RESERVE redisbloom 0.01 100 KIND redisbloom", "BF.ADD redisbloom"),
        ("redisbloom-cuckoo", "CF.RESERVE redisbloom-cuckoo 100", "CF.ADD redisbloom-cuckoo"),
    ] {
        client.call(reserve);
        for item in 0..50 {
            client.call(&format!("{add} {item}"));
        }
        let shown = both.get(&format!("/api/filters/{name}")).ok();
        assert_eq!((&shown["kind"], &shown["keys"]), (&json!(name), &json!(50)));
        assert!(shown["fill"].as_f64().unwrap() > 0.05, "{shown}");
        assert!(shown["rate"].as_f64().unwrap() < 0.1, "{shown}");
        assert_eq!(shown["layers"][0]["keys"], 50, "{name}");
        assert_eq!(shown["generations"].is_object(), name == "window");
        let test = |key: u32| both.get(&format!("/api/filters/{name}/test?key={key}")).ok();
        assert_eq!(test(7)["present"], true, "{name}");
        let absent = (1000..1100).filter(|key| test(*key)["present"] == false).count();
        assert!(absent > 85, "{name}: {absent}");
    }
    let window = both.get("/api/filters/window").ok();
    let generations = &window["generations"];
    assert_eq!(generations["span_seconds"], 3600.0);
    assert_eq!(generations["steps"][0]["keys"], 50);
    // A filter that has grown is two structures.
    for item in 50..500 {
        client.call(&format!("BF.ADD blocked {item}"));
    }
    std::thread::sleep(Duration::from_millis(600));
    let grown = both.get("/api/filters/blocked").ok();
    assert_eq!(grown["layers"].as_array().unwrap().len(), 2, "{grown}");
    assert_eq!(grown["advice"][0]["code"], "grown");
    let in_layers = |at: usize| grown["layers"][at]["bytes"].as_u64().unwrap();
    assert_eq!(grown["bytes"], in_layers(0) + in_layers(1), "{grown}");
    let info = client.call("BF.INFO blocked SIZE");
    assert_eq!(grown["bytes"], info.integers()[0], "{grown}");
}

#[test]
fn health_tells_what_is_wrong() {
    let both = Both::start(Config::default());
    let mut client = both.running.connect();
    client.call("CLIENT SETNAME <b>bold</b>");
    client.call("CONFIG SET slowlog-log-slower-than 0");
    client.call("BF.ADD seen x");
    let health = both.get("/api/health").ok();
    assert_eq!((&health["status"], &health["durability"]), (&json!("ok"), &Value::Null));
    assert_eq!(health["clients"]["list"][0]["name"], "<b>bold</b>");
    assert_eq!(health["filters"]["total"], 1);
    assert!(health["slow_log"].as_array().unwrap().iter().any(|it| it["words"][0] == "BF.ADD"));
    both.running.server.health.suffer("disk", "no space left on device");
    let health = both.get("/api/health").ok();
    assert_eq!(health["status"], "trouble");
    let troubles = json!([{ "part": "disk", "reason": "no space left on device" }]);
    assert_eq!(health["troubles"], troubles);
    both.running.server.health.suffer(inbloom_server::health::LOADING, "half is read");
    assert_eq!(both.get("/api/health").ok()["status"], "loading");
    assert_eq!(both.get("/api/filters").error(), (503, "loading".into()));
}

#[test]
fn filters_above_their_target_are_told() {
    let both = Both::start(Config::default());
    let mut client = both.running.connect();
    client.call("BF.RESERVE w 0.01 100 WINDOW 1h");
    client.call("BF.RESERVE x 0.01 3 NONSCALING");
    client.call("BF.MADD x one two three");
    for item in 0..2000 {
        client.call(&format!("BF.ADD w {item}"));
    }
    let begin = Instant::now();
    loop {
        let health = both.get("/api/health").ok();
        let over = &health["filters"]["over_target"][0];
        // The watch may have looked before the last of the keys came: then it is on the list already,
        // at a lower rate, and the next look has the rate of all.
        if over["name"] == "w" && over["rate"].as_f64().unwrap() > 0.02 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{health}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let metrics = both.get("/metrics").body;
    assert!(metrics.contains("\ninbloom_filters_over_target 1\n"), "{metrics}");
    assert!(metrics.contains("\ninbloom_filters_passed_target_total 1\n"), "{metrics}");
    assert!(metrics.contains("\ninbloom_filters_full 1\n"), "{metrics}");
    assert_eq!(both.get("/api/filters/w").ok()["advice"][0]["code"], "over_target");
    assert_eq!(both.get("/api/filters").ok()["filters"][0]["level"], "bad");
}

#[test]
fn the_page_is_served_once_and_then_known() {
    let both = Both::start(Config::default());
    for file in FILES {
        let path = format!("/{}", file.path);
        let reply = both.get(&path);
        assert_eq!((reply.status, reply.body.as_bytes()), (200, file.content), "{path}");
        let kind = reply.header("content-type").unwrap();
        assert_ne!(kind, "application/octet-stream", "{path} has no type: see page.rs");
        let tag = reply.header("etag").unwrap().to_owned();
        let again = both.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n"
        ));
        assert_eq!((again.status, &*again.body), (304, ""), "{path}");
    }
    assert_eq!(both.get("/").body, both.get("/index.html").body);
    for path in ["/../Cargo.toml", "/%2e%2e/Cargo.toml", "//etc/passwd", "/index.html/", "/api"] {
        assert_eq!(both.get(path).status, 404, "{path}");
    }
    let reply = both.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("get, head")));
}

#[test]
fn every_file_of_the_page_is_in_the_list() {
    fn collect(folder: &Path, files: &mut Vec<String>, root: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, files, root);
            } else {
                let path = path.strip_prefix(root).unwrap();
                files.push(path.to_str().unwrap().replace('\\', "/"));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
    let mut found = Vec::new();
    collect(&root, &mut found, &root);
    found.sort();
    let mut listed: Vec<&str> = FILES.iter().map(|file| file.path).collect();
    listed.sort_unstable();
    assert_eq!(found, listed, "FILES in src/http/page.rs against web/");
}

#[test]
fn what_cannot_be_planned_is_told_by_its_parameter() {
    let both = Both::start(Config::default());
    let plan = both.get("/api/plan?items=1M&rate=1%25&kind=classic").ok();
    assert_eq!(
        (&plan["chosen"], &plan["kinds"].as_array().unwrap().len()),
        (&json!("classic"), &8)
    );
    assert_eq!(plan["recommendation"]["code"], "default");
    assert_eq!(plan["curves"]["rate_by_keys"].as_array().unwrap().len(), 61);
    for (query, parameter) in [
        ("items=many", "items"),
        ("items=1M&rate=2", "rate"),
        ("items=1M&kind=cubic", "kind"),
        ("items=1M&need=wings", "need"),
        ("items=1M&colour=red", "colour"),
        ("items=1M&probes=999", "probes"),
    ] {
        let reply = both.get(&format!("/api/plan?{query}"));
        assert_eq!(reply.error(), (400, "bad_value".into()), "{query}");
        assert_eq!(reply.json()["error"]["parameter"], parameter, "{query}");
    }
    // A filter that always answers yes: no command makes it.
    let plan = both.get("/api/plan?items=1M&bytes=1000&kind=classic").ok();
    assert_eq!((&plan["chosen"], &plan["commands"]), (&json!("classic"), &Value::Null));
    let reply = both.get("/api/plan?rate=0.01");
    assert_eq!(reply.error(), (422, "unplannable".into()));
    assert!(reply.json()["error"]["kinds"][0]["refused"].is_string());
}

/// Requests that are not what they should be. None may end the server, or take it for long.
#[test]
fn broken_requests_are_answered_or_closed() {
    let both = Both::start(Config::default());
    let mut random = inbloom_testing::Random(20);
    let parts: [&[u8]; 14] = [
        b"GET ",
        b"POST ",
        b"/api/filters",
        b"/api/plan?items=1",
        b"%ff",
        b"?",
        b"&",
        b"=",
        b" HTTP/1.1\r\n",
        b"Host: localhost\r\n",
        b"Content-Length: 5\r\n",
        b"\r\n",
        b"Authorization: Basic \xff\r\n",
        b"\x00",
    ];
    for _ in 0..300 {
        let mut bytes = Vec::new();
        for _ in 0..random.below(12) {
            bytes.extend_from_slice(random.pick(&parts).unwrap());
        }
        let mut stream = TcpStream::connect(both.http).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(both.get("/healthz").status, 200);
    assert_eq!(both.get("/api/filters").status, 200);
}

#[test]
fn filters_on_a_store_are_not_shown_and_that_is_said() {
    let both = Both::start(Config::default());
    both.running.server.set_stored(StoredFilters::new(Arc::new(Double::default()), 1000));
    for path in ["/api/filters", "/api/filters/seen", "/api/filters/seen/test?item=a"] {
        assert_eq!(both.get(path).error(), (501, "store".into()), "{path}");
    }
    assert_eq!(both.get("/api/health").ok()["status"], "ok");
}
