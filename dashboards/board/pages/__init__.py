"""The pages of the board, one module a page. Only `dashboards.board.site` and the pages themselves import them."""
