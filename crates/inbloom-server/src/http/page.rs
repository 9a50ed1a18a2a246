//! The page: the files of `web/`, which are a part of the program.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use xxhash_rust::xxh3::xxh3_64;

/// A file of the page, compiled in.
pub struct WebFile {
    /// Its path there, and its address behind the slash.
    pub path: &'static str,
    /// Its content.
    pub content: &'static [u8],
}

/// A line of the list of files.
macro_rules! file {
    ($path:literal) => {
        WebFile { path: $path, content: include_bytes!(concat!("../../web/", $path)) }
    };
}

/// All files of `web/`; a test compares them with the folder.
pub static FILES: &[WebFile] = &[
    file!("api.js"),
    file!("app.js"),
    file!("calculator.js"),
    file!("charts.js"),
    file!("curves.js"),
    file!("dom.js"),
    file!("en.js"),
    file!("filter.js"),
    file!("filters.js"),
    file!("formulas.js"),
    file!("health.js"),
    file!("history.js"),
    file!("i18n.js"),
    file!("icon.svg"),
    file!("index.html"),
    file!("learn.js"),
    file!("numbers.js"),
    file!("preferences.js"),
    file!("standalone.html"),
    file!("standalone.js"),
    file!("style.css"),
    file!("toy.js"),
    file!("zh.js"),
];

/// Returns the file of a path of an address; `/` is the page itself.
pub fn find(path: &str) -> Option<&'static WebFile> {
    let name = match path.strip_prefix('/')? {
        "" => "index.html",
        name => name,
    };
    FILES.iter().find(|file| file.path == name)
}

impl WebFile {
    fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }

    /// Answers it, or that the browser's copy is still good.
    pub fn answer(&self, request: &HeaderMap) -> Response {
        let tag = format!("\"{:016x}\"", xxh3_64(self.content));
        let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let is_known = known.is_some_and(|tags| tags.split(',').any(|it| it.trim() == tag));
        let (status, content) = match is_known {
            true => (StatusCode::NOT_MODIFIED, &[][..]),
            false => (StatusCode::OK, self.content),
        };
        let mut response = (status, content).into_response();
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static(self.content_type());
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::ETAG, tag.parse().expect("digits are a header"));
        response
    }
}
