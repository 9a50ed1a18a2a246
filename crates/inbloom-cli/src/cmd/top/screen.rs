//! The screens: answers of the server as lines of text, and what keys do to them. Nothing here knows of
//! a terminal but its size.

use std::time::Instant;

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::client::{Failure, Look, Order, Reach, Screen, Snapshot, Sort};
use super::terminal::Key;
use crate::numbers;
use crate::output::printable;

/// Lines of the list's screen that are not filters.
pub const AROUND_LIST: usize = 7;
/// Names are shown up to here where there is room for everything.
const LONGEST_NAME: usize = 60;
/// The narrowest column of names.
const SHORTEST_NAME: usize = 16;

/// How a piece of a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Notice,
    Warning,
    Bad,
}

impl Style {
    /// Returns the parameters of its escape sequence; without color, what matters is bold.
    fn ansi(self, has_color: bool) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Bad | Style::Warning if !has_color => "1",
            Style::Good | Style::Notice if !has_color => "",
            Style::Good => "32",
            Style::Notice => "34",
            Style::Warning => "33",
            Style::Bad => "1;31",
        }
    }

    fn of_level(level: &str) -> Style {
        match level {
            "bad" => Style::Bad,
            "warn" => Style::Warning,
            "info" => Style::Notice,
            _ => Style::Good,
        }
    }
}

/// Returns the mark of a level: its shape says the same as its color.
fn mark(level: &str) -> &'static str {
    match level {
        "bad" => "\u{25a0}",
        "warn" => "\u{25c6}",
        _ => "\u{25cf}",
    }
}

#[derive(Clone, Debug, Default)]
pub struct ScreenLine {
    parts: Vec<(Style, String)>,
    is_selected: bool,
}

impl ScreenLine {
    /// Returns the text alone.
    pub fn plain(&self) -> String {
        let text: String = self.parts.iter().map(|(_, text)| text.as_str()).collect();
        text.trim_end().to_owned()
    }

    /// Returns the text with escape sequences.
    pub fn ansi(&self, has_color: bool) -> String {
        let mut text = String::new();
        for (style, part) in &self.parts {
            let selected = if self.is_selected { "7" } else { "" };
            let codes = [selected, style.ansi(has_color)].into_iter().filter(|it| !it.is_empty());
            let codes = codes.collect::<Vec<_>>().join(";");
            text.push_str(&format!("\x1b[0;{codes}m{part}"));
        }
        text
    }

    fn push(&mut self, style: Style, text: impl AsRef<str>) {
        self.parts.push((style, printable(text.as_ref()).into_owned()));
    }

    fn of(style: Style, text: impl AsRef<str>) -> ScreenLine {
        let mut line = ScreenLine::default();
        line.push(style, text);
        line
    }

    /// Returns the line without what does not fit into a width.
    fn cut(mut self, width: usize) -> ScreenLine {
        let mut left = width;
        for (_, text) in &mut self.parts {
            *text = cut(text, left);
            left -= text.width().min(left);
        }
        self
    }
}

/// Text of at most this width: what is longer ends in three dots, in one character.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut left = width.saturating_sub(1);
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        cut.push(c);
    }
    if width > 0 {
        cut.push('\u{2026}');
    }
    cut
}

/// Text on the left or the right side of a column.
fn aligned(text: &str, width: usize, is_number: bool) -> String {
    let text = cut(text, width);
    let blank = " ".repeat(width - text.width());
    if is_number { blank + &text } else { text + &blank }
}

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterKey {
    GoOn,
    Quit,
}

/// What is shown, and where the user is in it.
pub struct View {
    address: String,
    snapshot: Option<Snapshot>,
    /// When the server answered last, and why it did not since then.
    answered: Instant,
    failure: Option<String>,
    selected: usize,
    /// The filter on the selected line, once somebody has chosen it: it may move in the list.
    chosen: Option<String>,
    is_searching: bool,
}

impl View {
    pub fn new(address: &str) -> View {
        View {
            address: address.to_owned(),
            snapshot: None,
            answered: Instant::now(),
            failure: None,
            selected: 0,
            chosen: None,
            is_searching: false,
        }
    }

    /// Takes an answer.
    pub fn show(&mut self, snapshot: Snapshot) {
        self.snapshot = Some(snapshot);
        (self.answered, self.failure) = (Instant::now(), None);
        let rows = self.rows();
        let place = self
            .chosen
            .as_ref()
            .and_then(|chosen| rows.iter().position(|row| row["path"].as_str() == Some(chosen)));
        self.selected = place.unwrap_or(self.selected).min(rows.len().saturating_sub(1));
    }

    /// Takes the news that there is none.
    pub fn miss(&mut self, failure: &Failure) {
        self.failure = Some(failure.message.clone());
    }

    /// Returns the filters of the list that is shown.
    fn rows(&self) -> &[Value] {
        let snapshot = self.snapshot.as_ref().filter(|it| it.look.screen == Screen::List);
        snapshot.and_then(|it| it.shown["filters"].as_array()).map_or(&[], Vec::as_slice)
    }

    /// Does what a key asks for.
    pub fn press(&mut self, key: Key, look: &mut Look) -> AfterKey {
        if self.is_searching {
            self.press_in_search(key, look);
            return AfterKey::GoOn;
        }
        match (key, &look.screen) {
            (Key::Character('q'), _) => return AfterKey::Quit,
            (Key::Character('h'), Screen::Health) => look.screen = Screen::List,
            (Key::Character('h'), _) => look.screen = Screen::Health,
            (Key::Escape | Key::Backspace, Screen::Filter(_) | Screen::Health) => {
                look.screen = Screen::List;
            }
            (Key::Character('t'), Screen::Filter(_)) => {
                look.reach = match look.reach {
                    Reach::Quarter => Reach::Day,
                    Reach::Day => Reach::Quarter,
                };
            }
            (_, Screen::List) => self.press_in_list(key, look),
            _ => {}
        }
        AfterKey::GoOn
    }

    fn press_in_search(&mut self, key: Key, look: &mut Look) {
        match key {
            Key::Character(c) => look.search.push(c),
            Key::Backspace => drop(look.search.pop()),
            Key::Escape => {
                look.search.clear();
                self.is_searching = false;
            }
            Key::Enter => self.is_searching = false,
            _ => return,
        }
        self.go_to_top(look);
    }

    fn go_to_top(&mut self, look: &mut Look) {
        (look.offset, self.selected, self.chosen) = (0, 0, None);
    }

    fn press_in_list(&mut self, key: Key, look: &mut Look) {
        let rows = self.rows().len();
        let shown = self.snapshot.as_ref().map_or(&Value::Null, |it| &it.shown);
        let (found, has_next) = (number(shown, "found") as usize, shown["next"].is_u64());
        match key {
            Key::Down if self.selected + 1 < rows => self.selected += 1,
            Key::Up if self.selected > 0 => self.selected -= 1,
            Key::Down | Key::PageDown if has_next => {
                look.offset += look.rows;
                self.selected = 0;
            }
            Key::PageDown | Key::Down => self.selected = rows.saturating_sub(1),
            Key::Up | Key::PageUp if look.offset > 0 => {
                look.offset = look.offset.saturating_sub(look.rows);
                self.selected = if key == Key::Up { look.rows - 1 } else { 0 };
            }
            Key::PageUp | Key::Up => self.selected = 0,
            Key::Home => return self.go_to_top(look),
            Key::End => {
                look.offset = found.saturating_sub(1) / look.rows * look.rows;
                self.selected = found.saturating_sub(1) % look.rows;
            }
            Key::Enter => {
                let path = self.rows().get(self.selected).and_then(|row| row["path"].as_str());
                if let Some(path) = path.map(str::to_owned) {
                    self.chosen = Some(path.clone());
                    look.screen = Screen::Filter(path);
                }
                return;
            }
            Key::Escape => {
                look.search.clear();
                return self.go_to_top(look);
            }
            Key::Character('/') => {
                self.is_searching = true;
                return;
            }
            Key::Character('d') => {
                look.database = next_database(shown, look.database);
                return self.go_to_top(look);
            }
            Key::Character(letter) => {
                let sorts = COLUMNS.iter().filter_map(|column| column.sort);
                let Some(sort) = sorts.into_iter().find(|it| it.name().starts_with(letter)) else {
                    return;
                };
                look.order = match look.sort == sort {
                    true => look.order.reversed(),
                    false => sort.usual_order(),
                };
                look.sort = sort;
                return self.go_to_top(look);
            }
            Key::Backspace | Key::Interrupt => return,
        }
        let path = self.rows().get(self.selected).and_then(|row| row["path"].as_str());
        self.chosen = path.map(str::to_owned);
    }

    /// Returns the screen for a terminal of this size.
    pub fn frame(&self, look: &Look, width: usize, height: usize) -> Vec<ScreenLine> {
        let mut lines = self.head();
        let snapshot = self.snapshot.as_ref().filter(|it| it.look.screen == look.screen);
        match (snapshot, &look.screen) {
            (None, _) => lines.push(ScreenLine::of(Style::Dim, "waiting for the server ...")),
            (Some(_), Screen::List) => lines.extend(self.list(look, width)),
            (Some(it), Screen::Filter(_)) => lines.extend(filter(it, width)),
            (Some(it), Screen::Health) => lines.extend(health(&it.health)),
        }
        lines.resize(height.saturating_sub(2), ScreenLine::default());
        lines.push(ScreenLine::default());
        lines.push(self.foot(look));
        lines.into_iter().map(|line| line.cut(width)).collect()
    }

    /// Returns the list as text, as wide as it needs to be.
    pub fn text(&self, look: &Look) -> String {
        let mut lines = self.head();
        lines.extend(self.list(look, usize::MAX));
        lines.push(ScreenLine::default());
        lines.push(self.range(look));
        lines.iter().map(|line| line.plain() + "\n").collect()
    }

    /// Returns the server in three lines: does it work, what does it do, does it keep what it has?
    fn head(&self) -> Vec<ScreenLine> {
        let health = self.snapshot.as_ref().map_or(&Value::Null, |it| &it.health);
        let mut first = ScreenLine::default();
        first.push(Style::Bold, format!("inbloom {}", text(health, "version")));
        first.push(Style::Plain, format!("  {}  ", self.address));
        match &self.failure {
            Some(failure) => {
                let silent = span(self.answered.elapsed().as_secs_f64());
                first.push(Style::Bad, format!("{} no reply for {silent}: {failure}", mark("bad")));
            }
            None => {
                let status = text(health, "status");
                let level = if status == "ok" { "ok" } else { "bad" };
                first.push(Style::of_level(level), format!("{} {status}", mark(level)));
                let up = span(real(health, "uptime_seconds"));
                first.push(Style::Dim, format!("  up {up}"));
            }
        }
        let (traffic, memory) = (&health["traffic"], &health["memory"]);
        let each = |name: &str| numbers::bytes(real(traffic, name) as u64);
        let limit = match memory["limit"].as_u64() {
            Some(limit) => format!(" of {}", numbers::bytes(limit)),
            None => String::new(),
        };
        let second = format!(
            "commands {}/s   in {}/s   out {}/s   clients {}   memory {}{limit}",
            per_second(real(traffic, "commands_per_second")),
            each("bytes_in_per_second"),
            each("bytes_out_per_second"),
            numbers::exact(number(&health["clients"], "connected")),
            numbers::bytes(number(memory, "used")),
        );
        let mut third = durability(health);
        let over = number(&health["filters"], "over_target_count");
        if over > 0 {
            third.push(Style::Bad, format!("   {over} above the target rate"));
        }
        vec![first, ScreenLine::of(Style::Plain, second), third, ScreenLine::default()]
    }

    fn foot(&self, look: &Look) -> ScreenLine {
        if self.is_searching {
            let mut line = ScreenLine::of(Style::Bold, format!("Search: {}", look.search));
            line.push(Style::Dim, "_   Enter: done   Esc: all filters");
            return line;
        }
        let mut line = match look.screen {
            Screen::List => self.range(look),
            _ => ScreenLine::default(),
        };
        line.push(
            Style::Dim,
            match look.screen {
                Screen::List => {
                    "   Enter: look   n k c u m: sort   /: search   d: database   h: health   q: quit"
                }
                Screen::Filter(_) => "Esc: back   t: 15 minutes or 24 hours   h: health   q: quit",
                Screen::Health => "Esc: back   q: quit",
            },
        );
        line
    }

    /// Which part of which filters the list shows.
    fn range(&self, look: &Look) -> ScreenLine {
        let shown = self.snapshot.as_ref().map_or(&Value::Null, |it| &it.shown);
        let (from, rows) = (number(shown, "offset"), self.rows().len() as u64);
        let range = match rows {
            0 => "0".to_owned(),
            _ => format!("{}-{}", numbers::exact(from + 1), numbers::exact(from + rows)),
        };
        let found = numbers::exact(number(shown, "found"));
        let mut line = ScreenLine::of(Style::Bold, format!("{range} of {found}"));
        if look.database > 0 {
            line.push(Style::Plain, format!("   database {}", look.database));
        }
        if !look.search.is_empty() {
            line.push(Style::Plain, format!("   with '{}'", look.search));
        }
        line
    }

    fn list(&self, look: &Look, width: usize) -> Vec<ScreenLine> {
        let rows = self.rows();
        if rows.is_empty() {
            let text = match look.search.is_empty() {
                true => "no filters in this database yet: create one with BF.RESERVE",
                false => "no filter has this in its name",
            };
            return vec![ScreenLine::of(Style::Dim, text)];
        }
        let cells: Vec<Vec<String>> = COLUMNS
            .iter()
            .map(|column| rows.iter().map(|row| (column.cell)(row)).collect())
            .collect();
        let widths: Vec<usize> = COLUMNS
            .iter()
            .zip(&cells)
            .map(|(column, cells)| {
                let cells = cells.iter().map(|cell| cell.width()).max().unwrap_or(0);
                cells.max(column.title.len() + 2 * usize::from(column.sort.is_some()))
            })
            .collect();
        let names: Vec<String> =
            rows.iter().map(|row| printable(text(row, "name")).into_owned()).collect();
        let longest = names.iter().map(|name| name.width()).max().unwrap_or(0);
        let longest = longest.clamp(SHORTEST_NAME, LONGEST_NAME);
        // Columns that matter least go first, until names have room.
        let mut kept: Vec<usize> = (0..COLUMNS.len()).collect();
        let taken = |kept: &[usize]| 2 + kept.iter().map(|at| widths[*at] + 2).sum::<usize>();
        while taken(&kept) + SHORTEST_NAME > width {
            let Some(least) = kept.iter().copied().max_by_key(|at| COLUMNS[*at].rank) else {
                break;
            };
            kept.retain(|at| *at != least);
        }
        let name_width = longest.min(width.saturating_sub(taken(&kept)));

        let title = |title: &str, sort: Option<Sort>| match (sort == Some(look.sort), look.order) {
            (false, _) => title.to_owned(),
            (true, Order::Descending) => format!("{title} \u{25bc}"),
            (true, Order::Ascending) => format!("{title} \u{25b2}"),
        };
        let mut head = ScreenLine::of(Style::Plain, "  ");
        let mut push_title = |text: &str, sort, width, is_number| {
            let style = if sort == Some(look.sort) { Style::Bold } else { Style::Dim };
            head.push(style, aligned(&title(text, sort), width, is_number));
            head.push(Style::Plain, "  ");
        };
        push_title("name", Some(Sort::Name), name_width, false);
        for at in &kept {
            let column = &COLUMNS[*at];
            push_title(column.title, column.sort, widths[*at], column.is_number);
        }
        let mut lines = vec![head];
        for (place, (row, name)) in rows.iter().zip(&names).enumerate() {
            let level = text(row, "level");
            let mut line = ScreenLine::of(Style::of_level(level), format!("{} ", mark(level)));
            line.push(Style::Plain, aligned(name, name_width, false));
            for at in &kept {
                let cell = aligned(&cells[*at][place], widths[*at], COLUMNS[*at].is_number);
                let matters = matches!(COLUMNS[*at].title, "used" | "rate") && level != "ok";
                let style = if matters { Style::of_level(level) } else { Style::Plain };
                line.push(style, format!("  {cell}"));
            }
            line.is_selected = place == self.selected;
            lines.push(line);
        }
        lines
    }
}

/// A column of the list, beside the name.
struct Column {
    title: &'static str,
    sort: Option<Sort>,
    is_number: bool,
    /// Those with the highest go first where there is no room.
    rank: u8,
    cell: fn(&Value) -> String,
}

const NONE: &str = "-";

const COLUMNS: [Column; 10] = [
    column("kind", None, 5, |row| text(row, "kind").to_owned()),
    column("keys", Some(Sort::Keys), 1, |row| numbers::count(number(row, "keys"))),
    column("capacity", Some(Sort::Capacity), 4, |row| {
        optional(&row["capacity"], |it| numbers::count(it as u64))
    }),
    column("used", Some(Sort::Used), 0, |row| optional(&row["used"], numbers::share)),
    column("rate", None, 2, |row| optional(&row["rate"], numbers::rate)),
    column("target", None, 6, |row| optional(&row["target_rate"], numbers::rate)),
    column("memory", Some(Sort::Memory), 3, |row| numbers::bytes(number(row, "memory"))),
    column("adds/s", None, 7, |row| optional(&row["per_second"]["added"], per_second)),
    column("queries/s", None, 8, |row| optional(&row["per_second"]["asked"], per_second)),
    column("hits", None, 9, |row| optional(&row["per_second"]["hit_share"], numbers::share)),
];

const fn column(
    title: &'static str,
    sort: Option<Sort>,
    rank: u8,
    cell: fn(&Value) -> String,
) -> Column {
    // Kinds are the only words.
    Column { title, sort, is_number: rank != 5, rank, cell }
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or("")
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or(0)
}

fn real(object: &Value, name: &str) -> f64 {
    object[name].as_f64().unwrap_or(0.0)
}

fn optional(value: &Value, text: impl Fn(f64) -> String) -> String {
    value.as_f64().map_or(NONE.to_owned(), text)
}

/// Returns a number of events in a second: below ten with its fraction.
fn per_second(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        ..9.95 => format!("{number:.1}"),
        _ => numbers::count(number.round() as u64),
    }
}

/// Returns a span of time, in its two largest units: `45 s`, `3 h 20 min`.
fn span(seconds: f64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(365 * 86_400, "y"), (86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let seconds = seconds.round() as u64;
    let largest = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(4);
    let (unit, name) = UNITS[largest];
    let (whole, rest) = (seconds / unit, seconds % unit);
    match UNITS.get(largest + 1).map(|(smaller, name)| (rest / smaller, name)) {
        Some((more, smaller)) if more > 0 && whole < 100 => {
            format!("{whole} {name} {more} {smaller}")
        }
        _ => format!("{} {name}", numbers::exact(whole)),
    }
}

/// Returns how long ago a moment was that the API gives in seconds since 1970.
fn ago(health: &Value, at: &Value) -> String {
    match at.as_f64() {
        Some(at) => format!("{} ago", span((real(health, "now") - at).max(0.0))),
        None => "never".to_owned(),
    }
}

fn durability(health: &Value) -> ScreenLine {
    let state = &health["durability"];
    if let Some(trouble) = health["troubles"].as_array().and_then(|all| all.first()) {
        let said = format!("{}: {}", text(trouble, "part"), text(trouble, "reason"));
        return ScreenLine::of(Style::Bad, said);
    }
    if !state.is_object() {
        return ScreenLine::of(Style::Dim, "memory only: filters are lost when the server ends");
    }
    let snapshot = &state["snapshot"];
    let mut line = ScreenLine::of(
        Style::Plain,
        format!(
            "synced {}   log {}   snapshot {}",
            ago(health, &state["last_sync"]),
            numbers::bytes(number(state, "log_bytes")),
            match snapshot["running"] == true {
                true => "running".to_owned(),
                false => ago(health, &snapshot["last"]),
            },
        ),
    );
    if let Some(error) = snapshot["error"].as_str() {
        line.push(Style::Bad, format!("   the last one failed: {error}"));
    }
    line
}

/// Returns a bar of a share, with eighths of a character.
fn bar(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut bar = "\u{2588}".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        // From seven eighths, U+2589, to one, U+258F.
        bar.extend(char::from_u32(0x2590 - (eighths % 8) as u32));
    }
    let blank = width - bar.chars().count();
    bar + &"\u{b7}".repeat(blank)
}

/// Numbers as bars of up to eight eighths, the largest of all being full. Nothing for numbers that are not
/// known. Where there are more numbers than columns, a column is the largest of its numbers.
fn sparks(numbers: &[Option<f64>], columns: usize, most: f64) -> String {
    let columns = columns.min(numbers.len());
    let part = |column: usize| {
        &numbers[column * numbers.len() / columns..(column + 1) * numbers.len() / columns]
    };
    let spark = |column: usize| {
        let largest = part(column).iter().flatten().copied().fold(f64::NAN, f64::max);
        if largest.is_nan() {
            return ' ';
        }
        let eighths = (largest / most.max(f64::MIN_POSITIVE) * 8.0).ceil().clamp(0.0, 8.0);
        if eighths == 0.0 { '_' } else { char::from_u32(0x2580 + eighths as u32).unwrap_or(' ') }
    };
    (0..columns).map(spark).collect()
}

/// Lines of a label and what it is about.
fn labeled(label: &str, style: Style, text: impl AsRef<str>) -> ScreenLine {
    let mut line = ScreenLine::of(Style::Dim, format!("{label:<12}"));
    line.push(style, text);
    line
}

/// Returns the screen of one filter.
fn filter(snapshot: &Snapshot, width: usize) -> Vec<ScreenLine> {
    let shown = &snapshot.shown;
    let mut title = ScreenLine::of(Style::Bold, text(shown, "name"));
    title.push(Style::Plain, format!("   {}", text(shown, "kind")));
    let probes = shown["probes"].as_u64().map(|probes| format!("{probes} probes"));
    let hash = Some(format!("hash {}", text(shown, "hash")));
    let database = Some(format!("database {}", number(shown, "database")));
    for fact in [probes, hash, database].into_iter().flatten() {
        title.push(Style::Dim, format!("   {fact}"));
    }
    let mut lines = vec![title];
    for advice in shown["advice"].as_array().into_iter().flatten() {
        let level = text(advice, "level");
        let style = Style::of_level(level);
        let said = format!("{} {}", mark(level), advice_text(advice));
        lines
            .extend(wrapped(&said, width.min(100)).into_iter().map(|it| ScreenLine::of(style, it)));
    }
    lines.push(ScreenLine::default());
    lines.extend(facts(shown));
    lines.push(ScreenLine::default());
    let bar_width = width.saturating_sub(60).clamp(10, 40);
    lines.extend(layers(shown, bar_width));
    let columns = width.saturating_sub(13).min(128);
    lines.extend(strip(shown, columns));
    lines.push(ScreenLine::default());
    lines.extend(history(snapshot, columns));
    lines
}

fn advice_text(advice: &Value) -> String {
    let share = |name: &str| optional(&advice[name], numbers::share);
    let rate = |name: &str| optional(&advice[name], numbers::rate);
    let count = |name: &str| numbers::exact(number(advice, name));
    let reserve = || {
        let bytes = advice["reserve_bytes"].as_u64().map(numbers::bytes);
        let takes = bytes.map_or(String::new(), |bytes| format!(", which takes {bytes}"));
        format!("For twice the keys reserve {}{takes}.", count("reserve"))
    };
    match text(advice, "code") {
        "over_target" => format!(
            "The false-positive rate is {}, above the target of {}: the filter has {} keys and was \
             reserved for {}. Create a larger filter and add the keys again.",
            rate("rate"),
            rate("target_rate"),
            count("keys"),
            count("capacity")
        ),
        "full" => format!(
            "The filter has {} of {} keys and takes no more. Create a larger filter and add the keys again.",
            count("keys"),
            count("capacity")
        ),
        "full_soon" => format!(
            "{} used. At this speed it is full in {}. {}",
            share("used"),
            span(real(advice, "full_in_seconds")),
            reserve()
        ),
        "nearly_full" => format!("{} used. {}", share("used"), reserve()),
        "grown" => format!(
            "It has {} keys and was reserved for {}, so queries look in two structures. {}",
            count("keys"),
            count("capacity"),
            reserve()
        ),
        "uneven" => format!(
            "{} slices of the array differ more than chance explains. Check how the keys are hashed.",
            count("slices")
        ),
        "healthy" if advice["used"].is_null() => "Healthy.".to_owned(),
        "healthy" => format!("Healthy. {} used.", share("used")),
        // A newer server.
        code => code.to_owned(),
    }
}

fn facts(shown: &Value) -> Vec<ScreenLine> {
    let capacity = optional(&shown["capacity"], |it| numbers::exact(it as u64));
    let used = optional(&shown["used"], numbers::share);
    let keys = numbers::exact(number(shown, "keys"));
    let estimated = numbers::exact(real(shown, "estimated_keys").round() as u64);
    let rate = optional(&shown["rate"], numbers::rate);
    let target = optional(&shown["target_rate"], numbers::rate);
    let is_over = real(shown, "rate") > real(shown, "target_rate") && shown["target_rate"].is_f64();
    let memory = numbers::bytes(number(shown, "memory"));
    let speed = &shown["per_second"];
    let forecast = match &shown["forecast"] {
        Value::Null => "not known yet: it takes ten seconds".to_owned(),
        forecast => {
            let growth = real(forecast, "keys_per_second");
            let sign = if growth < 0.0 { "-" } else { "+" };
            let speed = format!("{sign}{} keys/s", per_second(growth.abs()));
            match forecast["full_in_seconds"].as_f64() {
                Some(left) => format!("full in {} at {speed}", span(left)),
                None => format!("not getting full at {speed}"),
            }
        }
    };
    vec![
        labeled(
            "keys",
            Style::Bold,
            format!("{keys} of {capacity}, {used} used; the bits suggest {estimated}"),
        ),
        labeled("fill", Style::Plain, optional(&shown["fill"], numbers::share)),
        labeled(
            "rate",
            if is_over { Style::Warning } else { Style::Plain },
            format!("{rate}, target {target}"),
        ),
        labeled("memory", Style::Plain, memory),
        labeled(
            "traffic",
            Style::Plain,
            format!(
                "{} adds/s, {} queries/s, hits {}",
                optional(&speed["added"], per_second),
                optional(&speed["asked"], per_second),
                optional(&speed["hit_share"], numbers::share)
            ),
        ),
        labeled("forecast", Style::Plain, forecast),
    ]
}

/// Layers, or the generations of a window, as bars.
fn layers(shown: &Value, width: usize) -> Vec<ScreenLine> {
    let line = |label: &str, what: String, fill: Option<f64>, keys: u64| {
        let bar = bar(fill.unwrap_or(0.0), width);
        let fill = fill.map_or(String::new(), |fill| format!(", {} filled", numbers::share(fill)));
        labeled(label, Style::Plain, format!("{what:<18} {bar} {}{fill}", numbers::keys(keys)))
    };
    let generations = &shown["generations"];
    if let Some(steps) = generations["steps"].as_array() {
        let step = |(place, step): (usize, &Value)| {
            let age = match step["age_seconds"].as_f64() {
                Some(age) => format!("{} old", span(age)),
                None => format!("generation {}", place + 1),
            };
            let label = if place == 0 { "generations" } else { "" };
            line(label, age, step["fill"].as_f64(), number(step, "keys"))
        };
        return steps.iter().enumerate().map(step).collect();
    }
    let layers = shown["layers"].as_array().map_or(&[][..], Vec::as_slice);
    let layer = |(place, layer): (usize, &Value)| {
        let label = if place == 0 { "layers" } else { "" };
        let kind = text(layer, "kind").to_owned();
        line(label, kind, layer["fill"].as_f64(), number(layer, "keys"))
    };
    layers.iter().enumerate().map(layer).collect()
}

/// How evenly a filter is filled.
fn strip(shown: &Value, columns: usize) -> Vec<ScreenLine> {
    let Some(fill) = shown["strip"]["fill"].as_array() else { return Vec::new() };
    let fill: Vec<Option<f64>> = fill.iter().map(Value::as_f64).collect();
    let most = fill.iter().flatten().copied().fold(0.0, f64::max);
    let out = shown["strip"]["stands_out"].as_array().map_or(0, Vec::len);
    let (style, verdict) = match out {
        0 => (Style::Dim, "the differences are chance".to_owned()),
        out => (Style::Warning, format!("{out} stand out: the keys may be hashed badly")),
    };
    let verdict = format!("{} slices of the array; {verdict}", fill.len());
    vec![
        labeled("evenness", Style::Plain, sparks(&fill, columns, most)),
        labeled("", style, verdict),
    ]
}

/// Adds, queries and the rate over time, the newest on the right.
fn history(snapshot: &Snapshot, columns: usize) -> Vec<ScreenLine> {
    let history = &snapshot.history;
    let name = match snapshot.look.reach {
        Reach::Quarter => "15 minutes",
        Reach::Day => "24 hours",
    };
    let series = |name: &str| -> Vec<Option<f64>> {
        let all = history[name].as_array().map_or(&[][..], Vec::as_slice);
        all.iter().map(Value::as_f64).collect()
    };
    let added = series("added");
    if added.iter().flatten().next().is_none() {
        let text = format!("the first sample of {name} comes within a minute");
        return vec![labeled("history", Style::Dim, text)];
    }
    let step = real(history, "step_seconds").max(1.0);
    let each = |counts: Vec<Option<f64>>| -> Vec<Option<f64>> {
        counts.into_iter().map(|count| count.map(|count| count / step)).collect()
    };
    let covered = span(added.len() as f64 * step);
    let mut lines = vec![labeled(
        "history",
        Style::Dim,
        format!("the last {covered} of at most {name}, now on the right"),
    )];
    let mut line = |label: &str, values: &[Option<f64>], text: fn(f64) -> String| {
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        let most_text = format!("at most {}", text(most));
        let columns = columns.saturating_sub(most_text.len() + 1).max(1);
        let sparks = sparks(values, columns, most);
        lines.push(labeled(label, Style::Plain, format!("{sparks} {most_text}")));
    };
    line("  adds/s", &each(added), per_second);
    line("  queries/s", &each(series("asked")), per_second);
    line("  rate", &series("rate"), numbers::rate);
    lines
}

/// Returns the screen of the server's health, below its head.
fn health(health: &Value) -> Vec<ScreenLine> {
    let mut lines = Vec::new();
    for trouble in health["troubles"].as_array().into_iter().flatten() {
        let said =
            format!("{} {}: {}", mark("bad"), text(trouble, "part"), text(trouble, "reason"));
        lines.push(ScreenLine::of(Style::Bad, said));
    }
    let (memory, clients) = (&health["memory"], &health["clients"]);
    let bytes =
        |object: &Value, name: &str| optional(&object[name], |it| numbers::bytes(it as u64));
    let count = |object: &Value, name: &str| numbers::exact(number(object, name));
    let limit = |name: &str| match memory[name].is_u64() {
        true => format!("limit {}", bytes(memory, name)),
        false => "no limit".to_owned(),
    };
    if let state @ Value::Object(_) = &health["durability"] {
        let snapshot = &state["snapshot"];
        lines.push(labeled(
            "durability",
            Style::Plain,
            format!(
                "fsync {}, log {} in {} records, {} since the snapshot",
                text(state, "fsync"),
                bytes(state, "log_bytes"),
                count(state, "log_records"),
                count(state, "unsaved_records"),
            ),
        ));
        let when = ago(health, &snapshot["last"]);
        let saved = match snapshot["last"].is_null() {
            true => when,
            false => {
                let filters = numbers::counted(number(snapshot, "filters"), "filter");
                format!("{when}: {filters}, {}", bytes(snapshot, "bytes"))
            }
        };
        lines.push(labeled("snapshot", Style::Plain, saved));
    }
    lines.push(labeled(
        "memory",
        Style::Plain,
        format!(
            "filters {}, peak {}, {}; resident {} of the machine's {}",
            bytes(memory, "used"),
            bytes(memory, "peak"),
            limit("limit"),
            bytes(memory, "resident"),
            bytes(memory, "system"),
        ),
    ));
    lines.push(labeled(
        "clients",
        Style::Plain,
        format!(
            "{} of {}; accepted {}, rejected {}, disconnected for memory {}, failed logins {}",
            count(clients, "connected"),
            count(clients, "limit"),
            count(clients, "accepted"),
            count(clients, "rejected"),
            count(clients, "evicted"),
            count(clients, "failed_logins"),
        ),
    ));
    for (place, over) in list(&health["filters"]["over_target"]).iter().take(5).enumerate() {
        let label = if place == 0 { "over target" } else { "" };
        let rate = optional(&over["rate"], numbers::rate);
        let target = optional(&over["target_rate"], numbers::rate);
        let said = format!("{}   {rate}, target {target}", text(over, "name"));
        lines.push(labeled(label, Style::Bad, said));
    }
    lines.push(ScreenLine::default());
    lines.push(ScreenLine::of(Style::Dim, "commands by time"));
    for command in list(&health["commands"]).iter().take(8) {
        let calls = number(command, "calls");
        let each = real(command, "seconds") * 1e6 / calls.max(1) as f64;
        lines.push(ScreenLine::of(
            Style::Plain,
            format!(
                "  {:<16} {:>10} calls {:>10} us each {:>10} failed",
                text(command, "name"),
                numbers::count(calls),
                numbers::significant(each),
                numbers::exact(number(command, "failed")),
            ),
        ));
    }
    lines.push(ScreenLine::default());
    lines.push(ScreenLine::of(Style::Dim, "slow commands"));
    match &health["slow_log"] {
        Value::Null => lines.push(ScreenLine::of(Style::Dim, "  shown to admins only")),
        slow if list(slow).is_empty() => lines.push(ScreenLine::of(Style::Dim, "  none")),
        slow => lines.extend(list(slow).iter().take(8).map(|entry| {
            let words = list(&entry["words"]).iter().filter_map(Value::as_str);
            let words = words.collect::<Vec<_>>().join(" ");
            let millis = numbers::significant(real(entry, "micros") / 1000.0);
            let when = ago(health, &entry["at"]);
            ScreenLine::of(Style::Plain, format!("  {millis:>8} ms  {when:<14}  {words}"))
        })),
    }
    lines
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the next database that has filters; the same one if no other has.
fn next_database(shown: &Value, database: u8) -> u8 {
    let all = list(&shown["databases"]).iter().filter_map(|it| it["database"].as_u64());
    let mut all: Vec<u8> = all.filter_map(|it| u8::try_from(it).ok()).collect();
    all.sort_unstable();
    let next = all.iter().copied().find(|it| *it > database);
    next.or(all.first().copied()).unwrap_or(database)
}

/// Text in lines of at most this width, broken at blanks.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(format!("  {word}"));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(name: &str, level: &str) -> Value {
        json!({
            "name": name, "path": name, "kind": "blocked", "keys": 12_345, "capacity": 20_000,
            "used": 0.617, "rate": 0.0004, "target_rate": 0.001, "memory": 34_567, "level": level,
            "per_second": { "added": 3.2, "asked": 120_000.0, "hit_share": 0.5 },
        })
    }

    fn snapshot(look: &Look, names: &[&str]) -> Snapshot {
        let rows: Vec<Value> = names.iter().map(|name| row(name, "warn")).collect();
        Snapshot {
            look: look.clone(),
            health: json!({
                "status": "ok", "version": "1.2.3", "uptime_seconds": 90_061.0, "now": 1000.0,
                "troubles": [], "durability": null, "filters": { "over_target_count": 2 },
                "memory": { "used": 1_000_000, "limit": 4_000_000 }, "clients": { "connected": 3 },
                "traffic": { "commands_per_second": 1234.0 },
                "slow_log": [{ "words": ["BF.ADD", "\u{1b}[2J"], "micros": 15_000, "at": 990.0 }],
                "commands": [{ "name": "bf.add", "calls": 10, "seconds": 0.001, "failed": 0 }],
            }),
            shown: json!({
                "found": 100, "offset": 0, "next": names.len(), "filters": rows,
                "databases": [{ "database": 0 }, { "database": 7 }],
            }),
            history: Value::Null,
        }
    }

    fn texts(view: &View, look: &Look, width: usize, height: usize) -> Vec<String> {
        view.frame(look, width, height).iter().map(ScreenLine::plain).collect()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_screen_higher() {
        let look = Look::list(0, "", Sort::Used, 3);
        let mut view = View::new("127.0.0.1:7380");
        let names = ["short", "\u{4e2d}\u{6587}\u{540d}\u{5b57}".repeat(20).leak(), "a\u{301}b"];
        view.show(snapshot(&look, &names));
        for width in 0..160 {
            for height in [0, 1, 5, 24] {
                let lines = view.frame(&look, width, height);
                assert!(lines.len() <= height.max(2), "{} lines of {height}", lines.len());
                for line in lines {
                    let wide = line.plain().width();
                    assert!(wide <= width, "{wide} of {width}: {}", line.plain());
                }
            }
        }
        let wide = texts(&view, &look, 160, 24).join("\n");
        for part in ["queries/s", "120k", "61.7%", "used \u{25bc}", "2 above the target", "1 d 1 h"]
        {
            assert!(wide.contains(part), "{part} in {wide}");
        }
        let narrow = texts(&view, &look, 40, 24).join("\n");
        assert!(narrow.contains("used") && !narrow.contains("queries/s"), "{narrow}");
    }

    #[test]
    fn hostile_names_move_no_cursor() {
        let look = Look::list(0, "", Sort::Used, 3);
        let mut view = View::new("127.0.0.1:7380");
        view.show(snapshot(&look, &["\u{1b}[2J\u{7}", "\u{202e}gpj.exe", "line\r\nbreak"]));
        let health = Look { screen: Screen::Health, ..look.clone() };
        for look in [look, health] {
            view.show(snapshot(&look, &["\u{1b}[2J\u{7}", "\u{202e}gpj.exe", "line\r\nbreak"]));
            let text = texts(&view, &look, 120, 30).join("");
            assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
            assert!(text.contains("\\x1b[2J"), "{text}");
        }
    }

    #[test]
    fn keys_choose_sort_search_and_open() {
        let mut look = Look::list(0, "", Sort::Used, 3);
        let mut view = View::new("127.0.0.1:7380");
        view.show(snapshot(&look, &["a", "b", "c"]));
        let mut press = |view: &mut View, key| view.press(key, &mut look);
        press(&mut view, Key::Down);
        assert_eq!((view.selected, view.chosen.as_deref()), (1, Some("b")));
        // The filter moves in the list, and the selection with it.
        let list = Look::list(0, "", Sort::Used, 3);
        view.show(snapshot(&list, &["b", "c", "a"]));
        assert_eq!(view.selected, 0);
        press(&mut view, Key::Enter);
        press(&mut view, Key::Character('t'));
        assert_eq!((&look.screen, look.reach), (&Screen::Filter("b".into()), Reach::Day));
        view.press(Key::Escape, &mut look);
        assert_eq!(look.screen, Screen::List);
        view.press(Key::PageDown, &mut look);
        assert_eq!((look.offset, view.selected), (3, 0));
        view.press(Key::End, &mut look);
        assert_eq!((look.offset, view.selected), (99, 0));
        view.press(Key::Character('m'), &mut look);
        assert_eq!((look.sort, look.order, look.offset), (Sort::Memory, Order::Descending, 0));
        view.press(Key::Character('m'), &mut look);
        view.press(Key::Character('d'), &mut look);
        assert_eq!((look.order, look.database), (Order::Ascending, 7));
        for key in [Key::Character('/'), Key::Character('q'), Key::Character('x'), Key::Backspace] {
            assert_eq!(view.press(key, &mut look), AfterKey::GoOn);
        }
        assert_eq!(look.search, "q");
        assert!(texts(&view, &look, 80, 24).last().unwrap().starts_with("Search: q"));
        view.press(Key::Enter, &mut look);
        view.press(Key::Escape, &mut look);
        assert_eq!(look.search, "");
        assert_eq!(view.press(Key::Character('q'), &mut look), AfterKey::Quit);
    }

    #[test]
    fn silence_is_shown_above_the_last_answer() {
        let look = Look::list(0, "", Sort::Used, 3);
        let mut view = View::new("127.0.0.1:7380");
        view.show(snapshot(&look, &["a"]));
        view.miss(&Failure { message: "connection refused".into(), is_final: false });
        let lines = texts(&view, &look, 120, 24);
        assert!(lines[0].contains("no reply for 0 s: connection refused"), "{}", lines[0]);
        assert!(lines.iter().any(|line| line.contains("61.7%")));
    }

    #[test]
    fn spans_bars_and_sparks() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (59.6, "1 min"),
            (3600.0, "1 h"),
            (3660.0, "1 h 1 min"),
            (90_061.0, "1 d 1 h"),
            (86_400.0 * 365.0 * 5000.0, "5,000 y"),
        ] {
            assert_eq!(span(seconds), text);
        }
        assert_eq!(bar(0.5, 4), "\u{2588}\u{2588}\u{b7}\u{b7}");
        assert_eq!(bar(0.125 / 4.0, 4), "\u{258f}\u{b7}\u{b7}\u{b7}");
        assert_eq!(bar(7.0, 2), "\u{2588}\u{2588}");
        assert_eq!(sparks(&[Some(0.0), None, Some(4.0), Some(8.0)], 9, 8.0), "_ \u{2584}\u{2588}");
        assert_eq!(sparks(&[Some(1.0), Some(8.0), None, None], 2, 8.0), "\u{2588} ");
        assert_eq!(sparks(&[], 5, 1.0), "");
    }
}
