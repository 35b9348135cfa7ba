// A component that is drawn again only when its properties differ. preact/compat has the same and 5 KB more.

import { Component, h } from "preact";

export function memo(draw, isSame) {
  return class extends Component {
    shouldComponentUpdate(next) {
      return !isSame(this.props, next);
    }

    render(props) {
      return h(draw, props);
    }
  };
}
