//! Small charts as SVG.

use maud::{Markup, html};

/// One series of a chart.
pub struct ChartSeries<'a> {
    /// Its name in the legend.
    pub name: &'a str,
    /// The class of its color.
    pub class: &'a str,
    /// Its values, oldest first.
    pub values: Vec<f64>,
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 96.0;
/// A chart has room for at least this many values, so that the first ones after a start do not fill it.
const MIN_STEPS: usize = 24;
/// Space above the highest value.
const TOP: f64 = 6.0;

/// Lines of values, with a legend that has their last value. `label` describes the chart for people who do not see it.
pub fn lines(label: &str, series: &[ChartSeries<'_>], format: impl Fn(f64) -> String) -> Markup {
    let highest = series.iter().flat_map(|one| &one.values).copied().fold(0.0, f64::max);
    html! {
        figure.chart {
            figcaption {
                span { (label) }
                @for one in series {
                    span.legend { i class=(one.class) {} (one.name) " " b { (format(one.values.last().copied().unwrap_or(0.0))) } }
                }
                span.peak { "peak " (format(highest)) }
            }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
                line.chart-base x1="0" x2=(WIDTH) y1=(HEIGHT - 1.0) y2=(HEIGHT - 1.0) {}
                @for one in series {
                    polyline class=(one.class) points=(points(&one.values, highest)) vector-effect="non-scaling-stroke" {}
                }
            }
        }
    }
}

/// Bars of several series on top of each other.
pub fn stacked_bars(label: &str, series: &[ChartSeries<'_>], format: impl Fn(f64) -> String) -> Markup {
    let length = series.iter().map(|one| one.values.len()).max().unwrap_or(0);
    let total = |at: usize| series.iter().map(|one| one.values.get(at).copied().unwrap_or(0.0)).sum::<f64>();
    let highest = (0..length).map(total).fold(0.0, f64::max);
    let step = WIDTH / length.max(MIN_STEPS) as f64;
    let left = WIDTH - step * length as f64;
    html! {
        figure.chart {
            figcaption {
                span { (label) }
                @for one in series.iter().filter(|one| one.values.iter().any(|value| *value > 0.0)) {
                    span.legend { i class=(one.class) {} (one.name) " " b { (format(one.values.iter().sum())) } }
                }
            }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
                line.chart-base x1="0" x2=(WIDTH) y1=(HEIGHT - 1.0) y2=(HEIGHT - 1.0) {}
                @if highest > 0.0 {
                    @for at in 0..length {
                        @for (index, one) in series.iter().enumerate() {
                            @let value = one.values.get(at).copied().unwrap_or(0.0);
                            @let below = series[..index].iter().map(|one| one.values.get(at).copied().unwrap_or(0.0)).sum::<f64>();
                            @if value > 0.0 {
                                @let scale = (HEIGHT - TOP) / highest;
                                rect class=(one.class) x=(px(left + step * at as f64)) width=(px((step - 0.5).max(0.5)))
                                    y=(px(HEIGHT - (below + value) * scale)) height=(px((value * scale).max(1.0))) {}
                            }
                        }
                    }
                }
            }
        }
    }
}

fn points(values: &[f64], highest: f64) -> String {
    let step = WIDTH / values.len().max(MIN_STEPS) as f64;
    let scale = if highest > 0.0 { (HEIGHT - TOP) / highest } else { 0.0 };
    let place = |at: usize, value: f64| {
        let x = WIDTH - step * (values.len() - at) as f64;
        format!("{},{}", px(x), px(HEIGHT - 1.0 - value * scale))
    };
    // Each value is that of an interval: the line starts with the first one and ends with the last one.
    let first = values.first().map(|value| place(0, *value));
    let ends = values.iter().enumerate().map(|(at, value)| place(at + 1, *value));
    first.into_iter().chain(ends).collect::<Vec<_>>().join(" ")
}

fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// A bar that shrinks to nothing in the remaining time. The browser animates it without a script.
pub fn countdown(remaining_ms: u64, ttl_ms: u64, is_overdue: bool) -> Markup {
    let ttl = ttl_ms.max(1) as f64;
    let width = (remaining_ms as f64 / ttl * 100.0).clamp(0.0, 100.0);
    let class = if is_overdue { "countdown overdue" } else { "countdown" };
    html! {
        svg class=(class) viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" {
            rect.countdown-base width="100" height="6" rx="2" {}
            rect.countdown-left width=(px(width)) height="6" rx="2" {
                @if remaining_ms > 0 {
                    animate attributeName="width" from=(px(width)) to="0" dur=(format!("{remaining_ms}ms")) fill="freeze" {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_without_values_or_with_zeros_are_drawn() {
        for values in [vec![], vec![0.0], vec![0.0, 0.0, 5.0]] {
            let series = [ChartSeries { name: "a<b", class: "c1", values }];
            for chart in [
                lines("label", &series, |value| value.to_string()),
                stacked_bars("label", &series, |value| value.to_string()),
            ] {
                let chart = chart.into_string();
                assert!(!chart.contains("NaN") && !chart.contains("inf") && !chart.contains("a<b"), "{chart}");
            }
        }
    }

    #[test]
    fn a_countdown_ends_with_the_lease() {
        let bar = countdown(2_500, 10_000, true).into_string();
        assert!(bar.contains("dur=\"2500ms\"") && bar.contains("from=\"25\"") && bar.contains("overdue"), "{bar}");
        assert!(!countdown(0, 0, true).into_string().contains("animate"));
        let limited = countdown(2_500, 10_000, false).into_string();
        assert!(!limited.contains("overdue"), "it was renewed, and ends with its longest hold: {limited}");
    }
}
