//! The documentation holds together: no dead link, no page that the book leaves out, and none that reaches out of the book.

#[path = "support/markdown.rs"]
mod markdown;

use markdown::{Page, pages_below, root};
use std::path::{Component, Path, PathBuf};

/// Pages that are no part of the book.
fn loose_pages() -> Vec<Page> {
    let names = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "RELEASING.md", "lab/README.md"];
    let crates = ["heat", "record", "frames", "pools", "c"].map(|name| format!("crates/isotherm-{name}/README.md"));
    names.map(str::to_owned).into_iter().chain(crates).map(|name| Page::read(&root().join(name))).collect()
}

/// `path` without `..` in it; the file need not be there.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
        plain
    })
}

/// Links of a page to files and headings here: the file, and the heading.
fn local_links(page: &Page) -> Vec<(&str, PathBuf, Option<&str>)> {
    let local = page.links.iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
    local
        .map(|link| {
            let (file, heading) = link.split_once('#').map_or((link.as_str(), None), |(file, to)| (file, Some(to)));
            let to = if file.is_empty() { page.path.clone() } else { plain(&page.path.parent().unwrap().join(file)) };
            (link.as_str(), to, heading)
        })
        .collect()
}

#[test]
fn no_link_is_dead() {
    let mut dead = Vec::new();
    for page in pages_below("docs").iter().chain(&loose_pages()) {
        for (link, to, heading) in local_links(page) {
            let is_page = to.extension().is_some_and(|extension| extension == "md");
            let found = to.exists()
                && heading.is_none_or(|heading| !is_page || Page::read(&to).anchors.iter().any(|a| a == heading));
            if !found {
                dead.push(format!("{}: {link}", page.path.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

#[test]
fn the_book_has_every_page_and_links_to_none_outside() {
    let docs = root().join("docs");
    let summary = Page::read(&docs.join("SUMMARY.md"));
    let listed: Vec<PathBuf> = local_links(&summary).into_iter().map(|(_, to, _)| to).collect();
    for page in pages_below("docs").iter().filter(|page| page.path != summary.path) {
        let name = page.path.strip_prefix(root()).unwrap().display();
        assert!(listed.contains(&page.path), "{name} is missing in docs/SUMMARY.md");
        for (link, to, _) in local_links(page) {
            assert!(to.starts_with(&docs), "{name} links out of the book, where {link} is dead: name the file instead");
        }
    }
}
